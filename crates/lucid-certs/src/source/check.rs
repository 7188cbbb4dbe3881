//! Checks of externally issued certificates.

use std::{fmt::Display, time::SystemTime};

use rustls::pki_types::CertificateDer;

use crate::{
    bundle::TrustBundle,
    names::ServingNames,
    serving::ServingCertificate,
    source::{Reason, SourceError},
    x509::{AlternativeNames, Certificate},
};

/// Checks a certificate as an API server does: it is valid at `now`, valid for each name by which API servers
/// call, and trusted by `bundle` if there is one.
///
/// For a Service, only `<service>.<namespace>.svc` is required. It is the only name on which certificate
/// issuers agree: OpenShift adds `.svc.cluster.local`, OLM adds `<service>.<namespace>`.
pub(crate) fn check(
    certificate: &ServingCertificate,
    names: &ServingNames,
    bundle: Option<&TrustBundle>,
    now: SystemTime,
) -> Result<(), SourceError> {
    check_validity(certificate, now)?;
    check_names(certificate, names)?;
    bundle.map_or(Ok(()), |bundle| check_trust(certificate, bundle, now))
}

fn check_validity(certificate: &ServingCertificate, now: SystemTime) -> Result<(), SourceError> {
    // Messages omit the current time so that repeated problems are logged once.
    let (fingerprint, validity) = (certificate.fingerprint(), certificate.validity());
    if validity.is_over(now) {
        let problem = format!("certificate {fingerprint} is expired: it was valid from {validity}");
        return Err(SourceError::new(Reason::Expired, problem));
    }
    if !validity.contains(now) {
        let problem = format!("certificate {fingerprint} is not valid yet: it is valid from {validity}");
        return Err(SourceError::new(Reason::NotYetValid, problem));
    }
    Ok(())
}

fn check_names(certificate: &ServingCertificate, names: &ServingNames) -> Result<(), SourceError> {
    let missing_names = certificate.missing_names(names);
    if missing_names.is_empty() {
        return Ok(());
    }
    let found = match subject_alternative_names(certificate.certificate()) {
        names if names.is_empty() => "no name (common names are not verified)".to_owned(),
        names => some_of(names.iter().map(|name| name.escape_debug())),
    };
    let fingerprint = certificate.fingerprint();
    let problem =
        format!("certificate {fingerprint} is not for {}: it is for {found}", some_of(missing_names));
    Err(SourceError::new(Reason::WrongName, problem))
}

pub(super) fn check_trust(
    certificate: &ServingCertificate,
    bundle: &TrustBundle,
    now: SystemTime,
) -> Result<(), SourceError> {
    certificate.verify_chain(bundle, now).map_err(|error| {
        let problem =
            format!("{}; the bundle has {}", lucid_text::with_causes(&error), some_of(bundle.fingerprints()));
        SourceError::new(Reason::Untrusted, problem)
    })
}

/// Formats at most ten items.
fn some_of(all: impl IntoIterator<Item = impl Display>) -> String {
    let mut all = all.into_iter();
    let shown: Vec<_> = all.by_ref().take(10).map(|one| one.to_string()).collect();
    match all.count() {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

fn subject_alternative_names(certificate: &CertificateDer<'_>) -> Vec<String> {
    let names = Certificate::parse(certificate).map(|certificate| certificate.extensions.alternative_names);
    let AlternativeNames { mut dns_names, ip_addresses, .. } = names.unwrap_or_default();
    dns_names.extend(ip_addresses.iter().filter_map(|bytes| {
        let v4 = <[u8; 4]>::try_from(&**bytes).map(|bytes| std::net::IpAddr::from(bytes).to_string());
        let v6 = <[u8; 16]>::try_from(&**bytes).map(|bytes| std::net::IpAddr::from(bytes).to_string());
        v4.or(v6).ok()
    }));
    dns_names
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rcgen::{CertificateParams, ExtendedKeyUsagePurpose, IsCa, KeyPair};

    use super::*;
    use crate::ca::{CertificateAuthority, SERVING_LIFETIME};
    use crate::validity::BACKDATE;

    const SECOND: Duration = Duration::from_secs(1);

    fn names() -> ServingNames {
        ServingNames::for_services("lucid-system", &["lucid-operator"]).unwrap()
    }

    /// Current time in whole seconds, the resolution of certificates.
    fn now() -> SystemTime {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
        SystemTime::UNIX_EPOCH + Duration::from_secs(since.as_secs())
    }

    fn self_signed(names: &[&str], shape: impl FnOnce(&mut CertificateParams)) -> ServingCertificate {
        let key = KeyPair::generate().unwrap();
        let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        shape(&mut params);
        let certificate = params.self_signed(&key).unwrap();
        ServingCertificate::from_pem(certificate.pem().as_bytes(), key.serialize_pem().as_bytes()).unwrap()
    }

    fn itself(certificate: &ServingCertificate) -> TrustBundle {
        TrustBundle::of(certificate.certificate().clone(), certificate.validity())
    }

    #[test]
    fn certificates_are_valid_from_their_first_to_their_last_second() {
        let (names, issued) = (names(), now());
        let ca = CertificateAuthority::generate(&names, issued).unwrap();
        let leaf = ca.issue(&names, issued).unwrap();
        let reason = |now| {
            check(&leaf, &names, Some(&ca.trust_bundle()), now).map_err(|error| {
                assert!(error.problem.contains(&leaf.fingerprint().to_string()), "{error}");
                error.reason
            })
        };
        assert_eq!(reason(issued - BACKDATE - SECOND), Err(Reason::NotYetValid));
        assert_eq!(reason(issued - BACKDATE), Ok(()));
        assert_eq!(reason(leaf.validity().not_after), Ok(()));
        assert_eq!(reason(issued + SERVING_LIFETIME + SECOND), Err(Reason::Expired));
    }

    #[test]
    fn certificates_must_be_valid_for_all_called_names() {
        let verdict =
            |names: &ServingNames, found: &[&str]| check(&self_signed(found, |_| ()), names, None, now());
        let svc = "lucid-operator.lucid-system.svc";
        let openshift = [svc, "lucid-operator.lucid-system.svc.cluster.local"];
        let olm = ["lucid-operator.lucid-system", svc];
        let wildcard = ["*.lucid-system.svc"];
        for found in [&[svc][..], &openshift, &olm, &wildcard] {
            verdict(&names(), found).unwrap();
        }

        let error = verdict(&names(), &["lucid-operator", "192.0.2.1", "2001:db8::1"]).unwrap_err();
        assert_eq!(error.reason, Reason::WrongName);
        let says =
            "is not for lucid-operator.lucid-system.svc: it is for lucid-operator, 192.0.2.1, 2001:db8::1";
        assert!(error.to_string().contains(says), "{error}");

        let with_hosts =
            names().with_host("example.com").and_then(|names| names.with_host("127.0.0.1")).unwrap();
        verdict(&with_hosts, &[svc, "example.com", "127.0.0.1"]).unwrap();
        let error = verdict(&with_hosts, &[svc]).unwrap_err();
        assert!(error.to_string().contains("is not for example.com, 127.0.0.1: it is for"), "{error}");
        let error = verdict(&names(), &[]).unwrap_err();
        assert!(error.to_string().contains("it is for no name"), "{error}");
    }

    #[test]
    fn names_in_a_certificate_are_escaped_and_at_most_ten_are_shown() {
        let forging = self_signed(&["a\n2026-01-01T00:00:00Z ERROR forged \u{1b}[2J"], |_| ());
        let error = check(&forging, &names(), None, now()).unwrap_err();
        assert!(!error.to_string().contains(char::is_control), "{error}");
        assert!(
            error.problem.ends_with(r"it is for a\n2026-01-01T00:00:00Z ERROR forged \u{1b}[2J"),
            "{error}"
        );

        let many: Vec<_> = (0..500).map(|n| format!("host-{n}.example")).collect();
        let shown = |count| {
            let many: Vec<_> = many.iter().take(count).map(String::as_str).collect();
            check(&self_signed(&many, |_| ()), &names(), None, now()).unwrap_err().problem
        };
        assert!(shown(10).ends_with(", host-9.example"), "{}", shown(10));
        assert!(shown(500).ends_with(", host-9.example and 490 more"), "{}", shown(500));
    }

    #[test]
    fn certificates_must_be_trusted_by_their_bundle() {
        let (names, now) = (names(), now());
        let [ca, other] = [(); 2].map(|()| CertificateAuthority::generate(&names, now).unwrap());
        let leaf = ca.issue(&names, now).unwrap();
        check(&leaf, &names, Some(&ca.trust_bundle().merge(&other.trust_bundle())), now).unwrap();
        let error = check(&leaf, &names, Some(&other.trust_bundle()), now).unwrap_err();
        assert_eq!(error.reason, Reason::Untrusted);
        assert!(error.problem.contains(&other.fingerprint().to_string()), "{error}");
    }

    #[test]
    fn certificates_in_the_bundle_are_trusted_as_in_go() {
        let svc = ["lucid-operator.lucid-system.svc"];
        let is_ca = |params: &mut CertificateParams| {
            params.is_ca = IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        };
        for shape in [is_ca, |_: &mut CertificateParams| ()] {
            let certificate = self_signed(&svc, shape);
            check(&certificate, &names(), Some(&itself(&certificate)), now()).unwrap();
        }
        let client = self_signed(&svc, |params| {
            params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        });
        let error = check(&client, &names(), Some(&itself(&client)), now()).unwrap_err();
        assert_eq!(error.reason, Reason::Untrusted);
    }
}
