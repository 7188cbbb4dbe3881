//! Keys and certificates of one cluster.

use std::net::IpAddr;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, Error,
    ExtendedKeyUsagePurpose, IsCa, KeyPair, KeyUsagePurpose, SanType,
};
use time::{Duration, OffsetDateTime};

use crate::layout::KUBERNETES_SERVICE;

/// Validity of certificates, longer than any test or session of `cargo xtask testbed up`.
const VALIDITY: Duration = Duration::days(30);

/// Certificate authority of a cluster.
pub(crate) struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

pub(crate) struct Pair {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

impl Authority {
    pub(crate) fn new() -> Result<Self, Error> {
        let mut params = params("lucid-testbed-ca", None);
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        Ok(Self { issuer: CertifiedIssuer::self_signed(params, KeyPair::generate()?)? })
    }

    pub(crate) fn certificate(&self) -> String {
        self.issuer.pem()
    }

    pub(crate) fn key(&self) -> String {
        self.issuer.key().serialize_pem()
    }

    pub(crate) fn certificate_der(&self) -> Vec<u8> {
        self.issuer.der().to_vec()
    }

    /// Issues a certificate for the API server, which pods reach by its Service, and for the other components at this address.
    pub(crate) fn serving_pair(&self, address: IpAddr) -> Result<Pair, Error> {
        let names = ["localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"];
        self.server_pair(&names, &[address, KUBERNETES_SERVICE.into()])
    }

    pub(crate) fn server_pair(&self, names: &[&str], addresses: &[IpAddr]) -> Result<Pair, Error> {
        let mut params = params("lucid-testbed", None);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        for name in names {
            params.subject_alt_names.push(SanType::DnsName((*name).try_into()?));
        }
        params.subject_alt_names.extend(addresses.iter().copied().map(SanType::IpAddress));
        self.sign(params)
    }

    /// Issues a client certificate. The API server reads the user from CN and the group from O.
    pub(crate) fn client_pair(&self, user: &str, group: Option<&str>) -> Result<Pair, Error> {
        let mut params = params(user, group);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.sign(params)
    }

    fn sign(&self, mut params: CertificateParams) -> Result<Pair, Error> {
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.issuer)?;
        Ok(Pair { certificate: certificate.pem(), key: key.serialize_pem() })
    }

    /// Creates the kubeconfig with the API server's client certificate for all webhooks.
    pub(crate) fn webhook_client(&self, common_name: &str) -> Result<String, Error> {
        let Pair { certificate, key } = self.client_pair(common_name, None)?;
        let (certificate, key) = (STANDARD.encode(certificate), STANDARD.encode(key));
        Ok(format!(
            "apiVersion: v1
kind: Config
users:
- name: '*'
  user:
    client-certificate-data: {certificate}
    client-key-data: {key}
"
        ))
    }

    pub(crate) fn kubeconfig(&self, server: &str, user: &str, group: Option<&str>) -> Result<String, Error> {
        let Pair { certificate, key } = self.client_pair(user, group)?;
        let authority = STANDARD.encode(self.certificate());
        let certificate = STANDARD.encode(certificate);
        let key = STANDARD.encode(key);
        Ok(format!(
            "apiVersion: v1
kind: Config
clusters:
- name: testbed
  cluster:
    server: {server}
    certificate-authority-data: {authority}
users:
- name: user
  user:
    client-certificate-data: {certificate}
    client-key-data: {key}
contexts:
- name: testbed
  context:
    cluster: testbed
    user: user
current-context: testbed
"
        ))
    }
}

fn params(name: &str, organization: Option<&str>) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    if let Some(organization) = organization {
        params.distinguished_name.push(DnType::OrganizationName, organization);
    }
    let now = OffsetDateTime::now_utc();
    params.not_before = now - Duration::HOUR;
    params.not_after = now + VALIDITY;
    params
}
