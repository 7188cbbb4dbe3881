// A validating webhook on controller-runtime, written as its book does: a handler that decodes the pod and reads its labels.
package main

import (
	"context"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

type validator struct {
	decoder admission.Decoder
	hold    time.Duration
}

func (v *validator) Handle(_ context.Context, request admission.Request) admission.Response {
	pod := &corev1.Pod{}
	if err := v.decoder.Decode(request, pod); err != nil {
		return admission.Errored(http.StatusBadRequest, err)
	}
	if v.hold > 0 {
		time.Sleep(v.hold)
	}
	if pod.Labels["example-validation"] == "true" {
		return admission.Allowed("")
	}
	return admission.Denied("label example-validation is not true")
}

func run() error {
	listen := flag.String("listen", "127.0.0.1:0", "address to serve at; port 0 takes any")
	cert := flag.String("cert", "", "certificate, PEM")
	key := flag.String("key", "", "key, PEM, in the same folder")
	hold := flag.Duration("hold", 0, "how long the handler keeps each request")
	flag.Parse()

	// controller-runtime takes port 0 for 9443, so a free one is looked up first.
	probe, err := net.ListenTCP("tcp", must(net.ResolveTCPAddr("tcp", *listen)))
	if err != nil {
		return err
	}
	address := probe.Addr().(*net.TCPAddr)
	probe.Close()

	ctrl.SetLogger(zap.New())
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		return err
	}
	server := webhook.NewServer(webhook.Options{
		Host: address.IP.String(), Port: address.Port,
		CertDir: filepath.Dir(*cert), CertName: filepath.Base(*cert), KeyName: filepath.Base(*key),
	})
	server.Register("/validate", &admission.Webhook{
		Handler: &validator{decoder: admission.NewDecoder(scheme), hold: *hold},
	})
	ctx := ctrl.SetupSignalHandler()
	go func() {
		for server.StartedChecker()(nil) != nil {
			time.Sleep(10 * time.Millisecond)
		}
		fmt.Printf("listening on %s\n", address)
	}()
	return server.Start(ctx)
}

func must[T any](value T, err error) T {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	return value
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
