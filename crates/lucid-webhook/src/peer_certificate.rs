//! Client identity from TLS certificates.

use std::fmt;
use std::sync::Arc;

use rustls::DistinguishedName;
use rustls::pki_types::CertificateDer;
use webpki::EndEntityCert;
use yasna::tags::{TAG_IA5STRING, TAG_OID, TAG_PRINTABLESTRING, TAG_UTF8STRING};
use yasna::{Tag, parse_der};

/// Verified client certificate, an extension of the client's requests.
///
/// ```
/// use lucid_webhook::PeerCertificate;
///
/// fn caller<B>(request: &http::Request<B>) -> Option<&str> {
///     request.extensions().get::<PeerCertificate>()?.common_name()
/// }
/// ```
#[derive(Clone)]
pub struct PeerCertificate(Arc<Peer>);

struct Peer {
    common_name: Option<String>,
    dns_names: Vec<String>,
}

impl PeerCertificate {
    /// Parses the names in a certificate. If it is malformed, there are none.
    #[must_use]
    pub fn new(der: &CertificateDer<'_>) -> Self {
        let (common_name, dns_names) = names(der).unwrap_or_default();
        Self(Arc::new(Peer { common_name, dns_names }))
    }

    /// Common name of the subject, which Kubernetes uses as the user name.
    #[must_use]
    pub fn common_name(&self) -> Option<&str> {
        self.0.common_name.as_deref()
    }

    /// DNS names among the subject alternative names.
    pub fn dns_names(&self) -> impl Iterator<Item = &str> {
        self.0.dns_names.iter().map(String::as_str)
    }
}

impl fmt::Debug for PeerCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PeerCertificate")
            .field("common_name", &self.0.common_name)
            .field("dns_names", &self.0.dns_names)
            .finish_non_exhaustive()
    }
}

/// Common name and DNS names in a certificate; `None` if it is malformed.
fn names(der: &CertificateDer<'_>) -> Option<(Option<String>, Vec<String>)> {
    let certificate = EndEntityCert::try_from(der).ok()?;
    let subject = DistinguishedName::in_sequence(certificate.subject());
    Some((common_name(subject.as_ref()), certificate.valid_dns_names().map(str::to_owned).collect()))
}

/// First common name in a name (RFC 5280, section 4.1.2.4), if it is text.
fn common_name(name: &[u8]) -> Option<String> {
    /// 2.5.4.3.
    const COMMON_NAME: &[u8] = &[0x55, 4, 3];
    let attributes = parse_der(name, |reader| {
        reader.collect_sequence_of(|reader| {
            reader.collect_set_of(|reader| reader.collect_sequence_of(|it| it.read_tagged_der()))
        })
    });
    attributes.ok()?.into_iter().flatten().find_map(|attribute| match &*attribute {
        [kind, value] if kind.tag() == TAG_OID && kind.value() == COMMON_NAME => {
            let is_text = TEXT.contains(&value.tag());
            Some(String::from_utf8(value.value().to_vec()).ok().filter(|_| is_text))
        }
        _ => None,
    })?
}

const TEXT: [Tag; 3] = [TAG_UTF8STRING, TAG_PRINTABLESTRING, TAG_IA5STRING];
