//! Serving certificates and trust bundles for Kubernetes webhooks
