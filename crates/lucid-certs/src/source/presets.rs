//! Presets for common certificate issuers.

#[cfg(feature = "files")]
mod files {
    use std::path::Path;

    use crate::source::Files;

    impl Files {
        /// Reads `tls.crt`, `tls.key` and, if present, `ca.crt` from `directory`: a mounted Secret of type
        /// `kubernetes.io/tls` or files created with openssl.
        #[must_use]
        pub fn in_directory(directory: impl AsRef<Path>) -> Self {
            let directory = directory.as_ref();
            Self::new(directory.join("tls.crt"), directory.join("tls.key")).with_ca(directory.join("ca.crt"))
        }

        /// Reads the Secret of a [cert-manager Certificate][spec], mounted at `directory`. Its `ca.crt` is
        /// the issuing CA.
        ///
        /// The bundle is published either by [cainjector] (annotation `cert-manager.io/inject-ca-from`) or by
        /// this crate with [`with_publishing`](Self::with_publishing). Issuers that do not know their CA,
        /// such as ACME, omit `ca.crt`.
        ///
        /// [spec]: https://cert-manager.io/docs/usage/certificate/
        /// [cainjector]: https://cert-manager.io/docs/concepts/ca-injector/
        #[must_use]
        pub fn cert_manager(directory: impl AsRef<Path>) -> Self {
            Self::in_directory(directory)
        }

        /// Reads the Secret that [OpenShift's service CA][docs] creates for a Service with the annotation
        /// `service.beta.openshift.io/serving-cert-secret-name`, mounted at `directory`.
        ///
        /// The Secret contains no bundle: OpenShift injects it into targets with the annotation
        /// `service.beta.openshift.io/inject-cabundle: "true"`. The certificate is valid for
        /// `<service>.<namespace>.svc` and `<service>.<namespace>.svc.cluster.local` of one Service.
        /// `tls.crt` also contains the issuing CA.
        ///
        /// [docs]: https://docs.openshift.com/container-platform/latest/security/certificates/service-serving-certificate.html
        #[must_use]
        pub fn openshift_service_ca(directory: impl AsRef<Path>) -> Self {
            let directory = directory.as_ref();
            Self::new(directory.join("tls.crt"), directory.join("tls.key"))
        }

        /// Reads the certificate that the Operator Lifecycle Manager mounts into each container of a
        /// deployment with [webhooks][docs]: `tls.crt` and `tls.key` in
        /// `/tmp/k8s-webhook-server/serving-certs`.
        ///
        /// OLM publishes the bundle. The certificate is valid for `<deployment>-service.<namespace>` and
        /// `<deployment>-service.<namespace>.svc`; its key is ECDSA P-256 in SEC1 format.
        ///
        /// [docs]: https://olm.operatorframework.io/docs/advanced-tasks/adding-admission-and-conversion-webhooks/
        #[must_use]
        pub fn olm() -> Self {
            Self::openshift_service_ca("/tmp/k8s-webhook-server/serving-certs")
        }

        /// Like [`olm`](Self::olm), with OLM's older location: `apiserver.crt` and `apiserver.key` in
        /// `/apiserver.local.config/certificates`.
        #[must_use]
        pub fn olm_api_server() -> Self {
            let directory = Path::new("/apiserver.local.config/certificates");
            Self::new(directory.join("apiserver.crt"), directory.join("apiserver.key"))
        }
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn presets_use_the_file_names_of_issuers() {
            let shown = |files: Files| format!("{files:?}");
            for (files, paths) in [
                (Files::in_directory("/a"), ["\"/a/tls.crt\"", "\"/a/tls.key\"", "Some(\"/a/ca.crt\")"]),
                (Files::cert_manager("/a"), ["\"/a/tls.crt\"", "\"/a/tls.key\"", "Some(\"/a/ca.crt\")"]),
                (Files::openshift_service_ca("/a"), ["\"/a/tls.crt\"", "\"/a/tls.key\"", "None"]),
                (
                    Files::olm(),
                    [
                        "\"/tmp/k8s-webhook-server/serving-certs/tls.crt\"",
                        "\"/tmp/k8s-webhook-server/serving-certs/tls.key\"",
                        "None",
                    ],
                ),
                (
                    Files::olm_api_server(),
                    [
                        "\"/apiserver.local.config/certificates/apiserver.crt\"",
                        "\"/apiserver.local.config/certificates/apiserver.key\"",
                        "None",
                    ],
                ),
            ] {
                let [certificate, key, ca] = paths;
                let expected = format!("certificate: {certificate}, key: {key}, ca: {ca}, publishes: false");
                assert!(shown(files).contains(&expected), "{expected}");
            }
        }
    }
}

#[cfg(feature = "kube")]
mod secret {
    use kube::Client;

    use crate::source::SecretSource;

    impl SecretSource {
        /// Reads the Secret of a [cert-manager Certificate][spec]. Its `ca.crt` is the issuing CA.
        ///
        /// The bundle is published either by [cainjector] (annotation `cert-manager.io/inject-ca-from`) or by
        /// this crate with [`with_publishing`](Self::with_publishing). Issuers that do not know their CA,
        /// such as ACME, leave `ca.crt` empty or omit it.
        ///
        /// [spec]: https://cert-manager.io/docs/usage/certificate/
        /// [cainjector]: https://cert-manager.io/docs/concepts/ca-injector/
        #[must_use]
        pub fn cert_manager(client: Client, namespace: &str, name: &str) -> Self {
            Self::new(client, namespace, name).with_ca("ca.crt")
        }

        /// Reads the Secret that [OpenShift's service CA][docs] creates for a Service with the annotation
        /// `service.beta.openshift.io/serving-cert-secret-name`.
        ///
        /// The Secret contains no bundle: OpenShift injects it into targets with the annotation
        /// `service.beta.openshift.io/inject-cabundle: "true"`. The certificate is valid for
        /// `<service>.<namespace>.svc` and `<service>.<namespace>.svc.cluster.local` of one Service.
        /// `tls.crt` also contains the issuing CA.
        ///
        /// [docs]: https://docs.openshift.com/container-platform/latest/security/certificates/service-serving-certificate.html
        #[must_use]
        pub fn openshift_service_ca(client: Client, namespace: &str, name: &str) -> Self {
            Self::new(client, namespace, name)
        }
    }
}
