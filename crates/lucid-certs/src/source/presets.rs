//! Where others put the certificates they make

#[cfg(feature = "files")]
mod files {
    use std::path::Path;

    use crate::source::Files;

    impl Files {
        /// `tls.crt`, `tls.key` and, if it is there, `ca.crt`: a mounted Secret of type `kubernetes.io/tls`, or
        /// files that openssl made.
        #[must_use]
        pub fn in_directory(directory: impl AsRef<Path>) -> Self {
            let directory = directory.as_ref();
            Self::new(directory.join("tls.crt"), directory.join("tls.key")).with_ca(directory.join("ca.crt"))
        }

        /// The Secret of a [Certificate of cert-manager][spec], mounted at `directory`. Its `ca.crt` is the authority that
        /// issued the certificate.
        ///
        /// The targets get the bundle from [cainjector], by the annotation `cert-manager.io/inject-ca-from`; or from
        /// here, [`with_publishing`](Self::with_publishing). Issuers that do not know their authority leave
        /// `ca.crt` out, such as ACME's.
        ///
        /// [spec]: https://cert-manager.io/docs/usage/certificate/
        /// [cainjector]: https://cert-manager.io/docs/concepts/ca-injector/
        #[must_use]
        pub fn cert_manager(directory: impl AsRef<Path>) -> Self {
            Self::in_directory(directory)
        }

        /// The Secret that [OpenShift's service CA][docs] makes for a Service with the annotation
        /// `service.beta.openshift.io/serving-cert-secret-name`, mounted at `directory`.
        ///
        /// There is no bundle in it: OpenShift writes that into every target with the annotation
        /// `service.beta.openshift.io/inject-cabundle: "true"`. The certificate is for `<service>.<namespace>.svc` and
        /// the same with `.cluster.local`, of the one Service; the file has the authority behind it.
        ///
        /// [docs]: https://docs.openshift.com/container-platform/latest/security/certificates/service-serving-certificate.html
        #[must_use]
        pub fn openshift_service_ca(directory: impl AsRef<Path>) -> Self {
            let directory = directory.as_ref();
            Self::new(directory.join("tls.crt"), directory.join("tls.key"))
        }

        /// What the Operator Lifecycle Manager mounts into each container of a deployment with
        /// [webhooks][docs]: `tls.crt` and `tls.key` in `/tmp/k8s-webhook-server/serving-certs`.
        ///
        /// OLM writes the bundle to the targets. The certificate is for `<deployment>-service.<namespace>` and the same
        /// with `.svc`; its key is ECDSA P-256 in SEC1.
        ///
        /// [docs]: https://olm.operatorframework.io/docs/advanced-tasks/adding-admission-and-conversion-webhooks/
        #[must_use]
        pub fn olm() -> Self {
            Self::openshift_service_ca("/tmp/k8s-webhook-server/serving-certs")
        }

        /// The same as [`olm`](Self::olm), in the older place that OLM mounts besides:
        /// `apiserver.crt` and `apiserver.key` in `/apiserver.local.config/certificates`.
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
        fn presets_name_the_files_others_write() {
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
        /// The Secret of a [Certificate of cert-manager][spec], with the authority that issued it in `ca.crt`.
        ///
        /// The targets get the bundle from [cainjector], by the annotation `cert-manager.io/inject-ca-from`; or from
        /// here, [`with_publishing`](Self::with_publishing). Issuers that do not know their authority leave
        /// `ca.crt` out or empty, such as ACME's.
        ///
        /// [spec]: https://cert-manager.io/docs/usage/certificate/
        /// [cainjector]: https://cert-manager.io/docs/concepts/ca-injector/
        #[must_use]
        pub fn cert_manager(client: Client, namespace: &str, name: &str) -> Self {
            Self::new(client, namespace, name).with_ca("ca.crt")
        }

        /// The Secret that [OpenShift's service CA][docs] makes for a Service with the annotation
        /// `service.beta.openshift.io/serving-cert-secret-name`.
        ///
        /// There is no bundle in it: OpenShift writes that into every target with the annotation
        /// `service.beta.openshift.io/inject-cabundle: "true"`. The certificate is for `<service>.<namespace>.svc` and
        /// the same with `.cluster.local`, of the one Service; `tls.crt` has the authority behind it.
        ///
        /// [docs]: https://docs.openshift.com/container-platform/latest/security/certificates/service-serving-certificate.html
        #[must_use]
        pub fn openshift_service_ca(client: Client, namespace: &str, name: &str) -> Self {
            Self::new(client, namespace, name)
        }
    }
}
