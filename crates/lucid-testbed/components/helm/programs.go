//go:build programs

// Package helm names helm, for `go mod tidy`. It is a module of its own: helm takes another version of client-go than the
// control plane.
package helm

import _ "helm.sh/helm/v4/cmd/helm"
