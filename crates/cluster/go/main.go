// All programs of a Kubernetes cluster in one file: which of them it is, its name or its first argument says.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	etcd "go.etcd.io/etcd/server/v3/etcdmain"
	apiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	api "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllers "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
	kwok "sigs.k8s.io/kwok/pkg/kwok/cmd"
)

func main() {
	name := filepath.Base(os.Args[0])
	if !known(name) && len(os.Args) > 1 {
		name = os.Args[1]
		os.Args = os.Args[1:]
	}
	switch name {
	case "etcd":
		etcd.Main(os.Args)
	case "kube-apiserver":
		run(api.NewAPIServerCommand())
	case "kube-controller-manager":
		run(controllers.NewControllerManagerCommand())
	case "kube-scheduler":
		run(scheduler.NewSchedulerCommand())
	case "kubelet":
		run(kubelet.NewKubeletCommand(apiserver.SetupSignalContext()))
	case "kwok":
		run(kwok.NewCommand(apiserver.SetupSignalContext()))
	default:
		fmt.Fprintf(os.Stderr, "%q is none of etcd, kube-apiserver, kube-controller-manager, kube-scheduler, kubelet, kwok\n", name)
		os.Exit(2)
	}
}

func known(name string) bool {
	switch name {
	case "etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kwok":
		return true
	}
	return false
}

func run(command *cobra.Command) {
	os.Exit(cli.Run(command))
}
