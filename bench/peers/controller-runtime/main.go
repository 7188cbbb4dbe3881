// Webhooks on controller-runtime, written as its book does: handlers that decode the pod.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

// Validates as the benchmark of the server does: by a label.
type labels struct {
	decoder admission.Decoder
	hold    time.Duration
}

func (l *labels) Handle(_ context.Context, request admission.Request) admission.Response {
	pod := &corev1.Pod{}
	if err := l.decoder.Decode(request, pod); err != nil {
		return admission.Errored(http.StatusBadRequest, err)
	}
	if l.hold > 0 {
		time.Sleep(l.hold)
	}
	if pod.Labels["example-validation"] == "true" {
		return admission.Allowed("")
	}
	return admission.Denied("label example-validation is not true")
}

// Injects one sidecar.
type injector struct {
	decoder admission.Decoder
}

func (i *injector) Handle(_ context.Context, request admission.Request) admission.Response {
	pod := &corev1.Pod{}
	if err := i.decoder.Decode(request, pod); err != nil {
		return admission.Errored(http.StatusBadRequest, err)
	}
	pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{
		Name:  "lucid-guardrails-auditor",
		Image: "ghcr.io/lucid/lucid-guardrails-auditor:latest",
		Ports: []corev1.ContainerPort{{ContainerPort: 8090}},
		Env:   []corev1.EnvVar{{Name: "LUCID_CHAIN_NEXT", Value: "http://localhost:5000"}},
	})
	mutated, err := json.Marshal(pod)
	if err != nil {
		return admission.Errored(http.StatusInternalServerError, err)
	}
	return admission.PatchResponseFromRaw(request.Object.Raw, mutated)
}

// Allows pods whose images all have a known digest.
type notary struct {
	decoder admission.Decoder
	digests map[string]bool
}

func (n *notary) Handle(_ context.Context, request admission.Request) admission.Response {
	pod := &corev1.Pod{}
	if err := n.decoder.Decode(request, pod); err != nil {
		return admission.Errored(http.StatusBadRequest, err)
	}
	for _, container := range append(pod.Spec.InitContainers, pod.Spec.Containers...) {
		if _, digest, _ := strings.Cut(container.Image, "@"); !n.digests[digest] {
			return admission.Denied(fmt.Sprintf("image %s is not notarized", container.Image))
		}
	}
	return admission.Allowed("")
}

func run() error {
	listen := flag.String("listen", "127.0.0.1:0", "address to serve at; port 0 takes any")
	cert := flag.String("cert", "", "certificate, PEM")
	key := flag.String("key", "", "key, PEM, in the same folder")
	hold := flag.Duration("hold", 0, "how long /labels keeps each request")
	digests := flag.String("digests", "", "notarized digests, separated by commas")
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
	notarized := map[string]bool{}
	for _, digest := range strings.Split(*digests, ",") {
		notarized[digest] = digest != ""
	}
	decoder := admission.NewDecoder(scheme)
	for path, handler := range map[string]admission.Handler{
		"/labels":   &labels{decoder: decoder, hold: *hold},
		"/mutate":   &injector{decoder: decoder},
		"/validate": &notary{decoder: decoder, digests: notarized},
	} {
		server.Register(path, &admission.Webhook{Handler: handler})
	}
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
