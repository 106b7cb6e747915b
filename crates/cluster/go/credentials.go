package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// How long a cluster's certificates are good. They begin a day early: a board's clock may be behind.
const validity = 365 * 24 * time.Hour

// `credentials DIRECTORY ADDRESS...` makes what a new cluster's programs know each other by, in a directory that has none of it:
//
//	ca.crt, server.crt, server.key   the API server's certificate for these addresses, and who signed it
//	etcd-ca.crt, etcd.crt, etcd.key  that of etcd, which its one client shows too
//	accounts.key                     signs the tokens of service accounts
//
// The keys that sign certificates are kept nowhere.
func credentials() {
	if len(os.Args) < 3 {
		fail(fmt.Errorf("usage: credentials DIRECTORY ADDRESS"))
	}
	directory := os.Args[1]
	var addresses []net.IP
	for _, text := range os.Args[2:] {
		address := net.ParseIP(text)
		if address == nil {
			fail(fmt.Errorf("%q is no IP address", text))
		}
		addresses = append(addresses, address)
	}
	both := []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	pair(directory, "ca", "server", addresses, both[:1])
	pair(directory, "etcd-ca", "etcd", []net.IP{net.IPv4(127, 0, 0, 1)}, both)
	write(directory, "accounts.key", "EC PRIVATE KEY", encoded(key()))
}

// An authority whose key is forgotten, and the one certificate that it signs.
func pair(directory, authority, name string, addresses []net.IP, usage []x509.ExtKeyUsage) {
	signer := key()
	root := template(1, "penstock "+authority)
	root.IsCA = true
	root.BasicConstraintsValid = true
	root.KeyUsage = x509.KeyUsageCertSign
	certificate, err := x509.CreateCertificate(rand.Reader, root, root, &signer.PublicKey, signer)
	fail(err)
	write(directory, authority+".crt", "CERTIFICATE", certificate)
	leaf := template(2, "penstock "+name)
	leaf.IPAddresses = addresses
	leaf.DNSNames = []string{"localhost"}
	leaf.KeyUsage = x509.KeyUsageDigitalSignature
	leaf.ExtKeyUsage = usage
	own := key()
	certificate, err = x509.CreateCertificate(rand.Reader, leaf, root, &own.PublicKey, signer)
	fail(err)
	write(directory, name+".crt", "CERTIFICATE", certificate)
	write(directory, name+".key", "EC PRIVATE KEY", encoded(own))
}

func template(serial int64, name string) *x509.Certificate {
	now := time.Now()
	return &x509.Certificate{
		SerialNumber: big.NewInt(serial),
		Subject:      pkix.Name{CommonName: name},
		NotBefore:    now.Add(-24 * time.Hour),
		NotAfter:     now.Add(validity),
	}
}

func key() *ecdsa.PrivateKey {
	made, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	fail(err)
	return made
}

func encoded(key *ecdsa.PrivateKey) []byte {
	bytes, err := x509.MarshalECPrivateKey(key)
	fail(err)
	return bytes
}

// Only for its owner, and never over a file that is there.
func write(directory, name, kind string, bytes []byte) {
	path := filepath.Join(directory, name)
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	fail(err)
	fail(pem.Encode(file, &pem.Block{Type: kind, Bytes: bytes}))
	fail(file.Close())
}

func fail(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
