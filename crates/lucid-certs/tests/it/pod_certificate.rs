//! Pod certificates on a real node, which kubelet serves by default from Kubernetes 1.37.

use std::{fs, io, path::Path, time::SystemTime};

use k8s_openapi::{
    ByteString,
    api::core::v1::Pod,
    apimachinery::pkg::apis::meta::v1::Time,
    jiff::{SignedDuration, Timestamp},
};
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams},
    discovery::oneshot::pinned_kind,
};
use lucid_certs::{Fingerprint, source::FileSource};
use lucid_e2e::{can_run_nodes, eventually, skip_version};
use lucid_testbed::Cluster;
use rcgen::{CertificateParams, PKCS_ECDSA_P256_SHA256, PublicKeyData, SignatureAlgorithm};
use serde_json::{Value, json};
use x509_parser::{certification_request::X509CertificationRequest, prelude::FromDer as _};

use crate::common::{following::Following, pairs::Ca};

const SIGNER: &str = "example.com/mesh";
const BUNDLE: &str = "example.com:mesh:ca";

#[tokio::test]
async fn certificates_of_kubelet_are_offered_with_the_bundle_beside_them() {
    if !can_run_nodes() {
        return;
    }
    let cluster = Cluster::builder().nodes(1).start().await.unwrap();
    let client = cluster.client();
    if pinned_kind(&client, &kind("PodCertificateRequest")).await.is_err() {
        skip_version("certificates.k8s.io/v1 PodCertificateRequest is not served");
        return;
    }
    let [first, second] = ["first", "second"]
        .map(|name| Ca::new(|params| params.distinguished_name.push(rcgen::DnType::CommonName, name)));
    let bundles = api(&client, "ClusterTrustBundle");
    let object = json!({
        "apiVersion": "certificates.k8s.io/v1", "kind": "ClusterTrustBundle", "metadata": {"name": BUNDLE},
        "spec": {"signerName": SIGNER, "trustBundle": first.pem},
    });
    bundles.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap();
    let pods = &Api::<Pod>::default_namespaced(client.clone());
    let pod = pods.create(&PostParams::default(), &pod()).await.unwrap();
    let fingerprint = issue(&client, &first).await;

    let uid = pod.metadata.uid.unwrap();
    let volume =
        cluster.folder().join(format!("node/kubelet/pods/{uid}/volumes/kubernetes.io~projected/tls"));
    let copy = tempfile::tempdir().unwrap();
    projects(&cluster, &volume, copy.path(), &first.pem, async || Ok(())).await;
    let source = FileSource::pod_certificate(copy.path().join("bundle.pem"));
    let mut source = Following::new(source.with_ca(copy.path().join("ca.crt")).with_publishing());
    source.offers(fingerprint).await;
    source.publishes(&first.bundle()).await;

    let both = first.pem.clone() + &second.pem;
    let patch = Patch::Merge(json!({"spec": {"trustBundle": both}}));
    bundles.patch(BUNDLE, &PatchParams::default(), &patch).await.unwrap();
    // The node looks at the volumes of a pod that has changed at once.
    let mut changes = 0..;
    let change = async || {
        let change = json!({"metadata": {"annotations": {"change": format!("{:?}", changes.next())}}});
        pods.patch("web", &PatchParams::default(), &Patch::Merge(change)).await.map(drop)
    };
    projects(&cluster, &volume, copy.path(), &second.pem, change).await;
    source.publishes(&first.bundle().merge(&second.bundle())).await;
}

/// Copies the volume with its links, which only the node sees, until its bundle contains `ca`.
async fn projects(
    cluster: &Cluster,
    volume: &Path,
    copy: &Path,
    ca: &str,
    mut change: impl AsyncFnMut() -> kube::Result<()>,
) {
    eventually("kubelet projects the bundle", async || {
        change().await.unwrap();
        let mut cp = cluster.command("cp");
        let output = cp.args(["-aT", "--remove-destination"]).args([volume, copy]).output()?;
        if !output.status.success() {
            return Err(io::Error::other(format!("{output:?}")));
        }
        let bundle = fs::read_to_string(copy.join("ca.crt"))?;
        if bundle.contains(ca) { Ok(()) } else { Err(io::Error::other(bundle)) }
    })
    .await;
}

fn kind(kind: &str) -> GroupVersionKind {
    GroupVersionKind::gvk("certificates.k8s.io", "v1", kind)
}

fn api(client: &Client, name: &str) -> Api<DynamicObject> {
    let resource = ApiResource::from_gvk(&kind(name));
    if name == "ClusterTrustBundle" {
        Api::all_with(client.clone(), &resource)
    } else {
        Api::default_namespaced_with(client.clone(), &resource)
    }
}

fn pod() -> Pod {
    let pod = json!({"metadata": {"name": "web"}, "spec": {
        "terminationGracePeriodSeconds": 0,
        "containers": [{
            "name": "hello", "image": "testbed.test/hello:1", "imagePullPolicy": "Never",
            "volumeMounts": [{"name": "tls", "mountPath": "/tls"}],
        }],
        "volumes": [{"name": "tls", "projected": {"sources": [
            {"podCertificate": {
                "signerName": SIGNER, "keyType": "ECDSAP256", "credentialBundlePath": "bundle.pem",
            }},
            {"clusterTrustBundle": {"signerName": SIGNER, "labelSelector": {}, "path": "ca.crt"}},
        ]}}],
    }});
    serde_json::from_value(pod).unwrap()
}

/// Signs the request of kubelet as a signer does, and returns the fingerprint of the certificate.
async fn issue(client: &Client, ca: &Ca) -> Fingerprint {
    let requests = api(client, "PodCertificateRequest");
    let request = eventually("kubelet requests a certificate", async || {
        let found = requests.list(&Default::default()).await.unwrap().items;
        found.into_iter().next().ok_or("none")
    })
    .await;
    let csr: ByteString = serde_json::from_value(request.data["spec"]["stubPKCS10Request"].clone()).unwrap();
    let (_, csr) = X509CertificationRequest::from_der(&csr.0).unwrap();
    let key = &csr.certification_request_info.subject_pki.subject_public_key.data;
    let mut params = CertificateParams::new(["web.default.svc".to_owned()]).unwrap();
    // Whole seconds, as in a certificate.
    let now = Timestamp::from_second(Timestamp::now().as_second()).unwrap();
    let time = |hours: i64| Time(now + SignedDuration::from_hours(hours));
    params.not_before = SystemTime::from(time(0).0).into();
    params.not_after = SystemTime::from(time(2).0).into();
    let certificate = params.signed_by(&Key(key.to_vec()), &ca.issuer).unwrap();
    let issued = json!({
        "type": "Issued", "status": "True", "reason": "Issued", "message": "", "lastTransitionTime": time(0),
    });
    let status: Value = json!({"status": {
        "conditions": [issued], "certificateChain": certificate.pem(),
        "notBefore": time(0), "beginRefreshAt": time(1), "notAfter": time(2),
    }});
    let name = request.metadata.name.unwrap();
    requests.patch_status(&name, &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
    Fingerprint::of(certificate.der())
}

/// Public key of the node, an uncompressed point.
struct Key(Vec<u8>);

impl PublicKeyData for Key {
    fn der_bytes(&self) -> &[u8] {
        &self.0
    }

    fn algorithm(&self) -> &'static SignatureAlgorithm {
        &PKCS_ECDSA_P256_SHA256
    }
}
