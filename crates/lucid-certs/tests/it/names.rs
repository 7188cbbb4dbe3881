//! Names of serving certificates.

use std::net::IpAddr;

use lucid_certs::{CertificateAuthority, ServingNames};
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::common::now;

#[test]
fn each_service_gets_its_four_names_in_order() {
    let names =
        ServingNames::for_services("lucid-system", &["lucid-operator", "lucid-operator-webhook"]).unwrap();
    assert_eq!(
        names.dns_names().collect::<Vec<_>>(),
        [
            "lucid-operator",
            "lucid-operator.lucid-system",
            "lucid-operator.lucid-system.svc",
            "lucid-operator.lucid-system.svc.cluster.local",
            "lucid-operator-webhook",
            "lucid-operator-webhook.lucid-system",
            "lucid-operator-webhook.lucid-system.svc",
            "lucid-operator-webhook.lucid-system.svc.cluster.local",
        ]
    );
    assert!(names.ip_addresses().is_empty());
}

#[test]
fn hosts_are_dns_names_or_addresses_without_duplicates() {
    let mut names = ServingNames::for_services("ns", &["svc"]).unwrap();
    for host in ["Webhook.Example.COM", "webhook.example.com", "10.0.0.1", "10.0.0.1", "::1", "svc"] {
        names = names.with_host(host).unwrap();
    }
    assert_eq!(names.dns_names().last(), Some("webhook.example.com"));
    assert_eq!(names.dns_names().count(), 5);
    let addresses: Vec<_> = names.ip_addresses().iter().map(ToString::to_string).collect();
    assert_eq!(addresses, ["10.0.0.1", "::1"]);
}

#[test]
fn invalid_hosts_are_rejected() {
    for host in ["", "*.example.com", "example.com.", "[::1]", "10.0.0.1:443", "a b", "-a", "300.0.0.1"] {
        let error = ServingNames::for_services("ns", &["svc"]).unwrap().with_host(host).unwrap_err();
        assert!(error.to_string().contains(&format!("{host:?} as a host")), "{error}");
    }
}

#[test]
fn hosts_are_the_only_names_without_a_service() {
    let names = ServingNames::for_hosts(&["192.0.2.7", "hooks.example.com", "192.0.2.7"]).unwrap();
    assert_eq!(names.dns_names().collect::<Vec<_>>(), ["hooks.example.com"]);
    assert_eq!(names.ip_addresses(), ["192.0.2.7".parse::<IpAddr>().unwrap()]);
    let error = ServingNames::for_hosts(&[]).unwrap_err().to_string();
    assert!(error.contains("at least one host is expected"), "{error}");
    let error = ServingNames::for_hosts(&["192.0.2.7", "192.0.2.7:8443"]).unwrap_err().to_string();
    assert!(error.contains("\"192.0.2.7:8443\" as a host"), "{error}");
}

#[test]
fn long_hosts_are_truncated_in_the_common_name() {
    let label = "a".repeat(60);
    for (host, common_name) in [
        ("192.0.2.7".to_owned(), "192.0.2.7".to_owned()),
        (format!("{label}.io"), format!("{label}.io")),
        (format!("{label}.example.com"), format!("{label}.exa")),
    ] {
        let names = ServingNames::for_hosts(&[&host]).unwrap();
        let ca = CertificateAuthority::generate(&names, now()).unwrap();
        let leaf = ca.issue(&names, now()).unwrap();
        leaf.verify_for(&names, &ca.trust_bundle(), now()).unwrap();
        let (_, leaf) = X509Certificate::from_der(leaf.certificate()).unwrap();
        assert_eq!(leaf.subject().to_string(), format!("CN={common_name}"));
    }
}

#[test]
fn invalid_labels_are_rejected_with_their_purpose() {
    let long = "a".repeat(64);
    for name in ["", "Upper", "dotted.name", "-a", "a-", "under_score", long.as_str()] {
        for (rejected, what) in [
            (ServingNames::for_services("ns", &[name]), "Service"),
            (ServingNames::for_services(name, &["svc"]), "namespace"),
        ] {
            let error = rejected.unwrap_err().to_string();
            assert!(error.contains(&format!("{name:?} as the name of a {what}")), "{error}");
        }
    }
    let error = ServingNames::for_services("ns", &[]).unwrap_err().to_string();
    assert!(error.contains("at least one Service is expected"), "{error}");
    assert!(ServingNames::for_services("ns", &[&long[1..]]).is_ok());
}
