//! Plans an ordered chain of auditor sidecars for a Kubernetes pod and writes it as a JSON patch
