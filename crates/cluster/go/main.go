// All programs of a Kubernetes cluster in one file: which of them it is, its name or its first argument says.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	etcd "go.etcd.io/etcd/server/v3/etcdmain"
	apiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	kubectl "k8s.io/kubectl/pkg/cmd"
	"k8s.io/kubectl/pkg/cmd/util"
	api "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllers "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
	node "sigs.k8s.io/kwok/kustomize/stage/node/fast"
	heartbeat "sigs.k8s.io/kwok/kustomize/stage/node/heartbeat-with-lease"
	pod "sigs.k8s.io/kwok/kustomize/stage/pod/fast"
	"sigs.k8s.io/kwok/pkg/config"
	kwok "sigs.k8s.io/kwok/pkg/kwok/cmd"
	"sigs.k8s.io/kwok/pkg/log"
)

// What each name runs.
var programs = map[string]func(){
	"etcd":                    func() { etcd.Main(os.Args) },
	"kube-apiserver":          func() { run(api.NewAPIServerCommand()) },
	"kube-controller-manager": func() { run(controllers.NewControllerManagerCommand()) },
	"kube-scheduler":          func() { run(scheduler.NewSchedulerCommand()) },
	// It makes a context of its own that signals end, and no program may do that twice.
	"kubelet": func() { run(kubelet.NewKubeletCommand(context.Background())) },
	"kwok":    simulate,
	"kwok-stages": func() {
		fmt.Println(strings.Join([]string{
			node.DefaultNodeInit, heartbeat.DefaultNodeHeartbeatWithLease,
			pod.DefaultPodReady, pod.DefaultPodComplete, pod.DefaultPodDelete,
		}, "\n---\n"))
	},
	"kubectl": func() {
		if err := cli.RunNoErrOutput(kubectl.NewDefaultKubectlCommand()); err != nil {
			util.CheckErr(err)
		}
	},
	"credentials": credentials,
}

func main() {
	name := filepath.Base(os.Args[0])
	if programs[name] == nil && len(os.Args) > 1 {
		name = os.Args[1]
		os.Args = os.Args[1:]
	}
	program := programs[name]
	if program == nil {
		fmt.Fprintf(os.Stderr, "%q is none of the programs in this file\n", name)
		os.Exit(2)
	}
	program()
}

// As kwok's own main: it reads its configuration, which says how nodes and pods are simulated, before its command line.
func simulate() {
	// The other programs in this file have put flags there, `--version` among them, which are not kwok's.
	pflag.CommandLine = pflag.NewFlagSet("kwok", pflag.ContinueOnError)
	flags := pflag.NewFlagSet("kwok", pflag.ContinueOnError)
	flags.ParseErrorsAllowlist.UnknownFlags = true
	flags.Usage = func() {}
	ctx, _ := log.InitFlags(apiserver.SetupSignalContext(), flags)
	ctx, err := config.InitFlags(ctx, flags)
	fail(err)
	command := kwok.NewCommand(ctx)
	command.PersistentFlags().AddFlagSet(flags)
	fail(command.ExecuteContext(ctx))
}

func run(command *cobra.Command) {
	os.Exit(cli.Run(command))
}
