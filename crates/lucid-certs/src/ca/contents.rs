//! Contents of issued certificates.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    time::{Duration, SystemTime},
};

use aws_lc_rs::rand;
use rcgen::{
    BasicConstraints, CertificateParams, CidrSubnet, DistinguishedName, DnType, ExtendedKeyUsagePurpose,
    GeneralSubtree, IsCa, KeyUsagePurpose, NameConstraints, SanType,
};
use snafu::ResultExt;

use super::SIGN;
use crate::{
    names::ServingNames,
    serving::{GenerateSnafu, PairError},
    validity::{BACKDATE, Validity},
};

pub(super) fn authority(names: &ServingNames, validity: Validity) -> Result<CertificateParams, PairError> {
    // Common names are limited to 64 characters.
    let common_name = format!("{:.61} CA", names.common_name());
    let mut params = common(&common_name, validity)?;
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params.name_constraints =
        Some(NameConstraints { permitted_subtrees: permitted(names), excluded_subtrees: Vec::new() });
    Ok(params)
}

pub(super) fn leaf(names: &ServingNames, validity: Validity) -> Result<CertificateParams, PairError> {
    let mut params = common(names.common_name(), validity)?;
    params.is_ca = IsCa::ExplicitNoCa;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    for name in names.dns_names() {
        let name = name.try_into().boxed().context(SIGN)?;
        params.subject_alt_names.push(SanType::DnsName(name));
    }
    params.subject_alt_names.extend(names.ip_addresses().iter().copied().map(SanType::IpAddress));
    Ok(params)
}

/// Validity period from [`BACKDATE`] ago until `lifetime` from now, within the range of X.509.
pub(super) fn validity(now: SystemTime, lifetime: Duration) -> Validity {
    let last = SystemTime::UNIX_EPOCH + LAST;
    Validity {
        not_before: now.checked_sub(BACKDATE).unwrap_or(SystemTime::UNIX_EPOCH),
        not_after: now.checked_add(lifetime).map_or(last, |end| end.min(last)),
    }
}

/// 99991231235959Z, which means no expiry (RFC 5280, section 4.1.2.5).
const LAST: Duration = Duration::from_secs(253_402_300_799);

/// Parameters of all certificates: subject, validity period, serial number and key identifiers.
fn common(common_name: &str, validity: Validity) -> Result<CertificateParams, PairError> {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, common_name);
    params.not_before = validity.not_before.into();
    params.not_after = validity.not_after.into();
    params.serial_number = Some(serial_number()?.to_vec().into());
    params.use_authority_key_identifier_extension = true;
    Ok(params)
}

/// 128 bits starting with 01: positive, with a fixed-length encoding.
fn serial_number() -> Result<[u8; 16], PairError> {
    let mut serial = [0; 16];
    let problem = "failed to generate a serial number";
    rand::fill(&mut serial).boxed().context(GenerateSnafu { problem })?;
    serial[0] = serial[0] & 0x3f | 0x40;
    Ok(serial)
}

/// Permitted names of a CA. Lists addresses too, because constraints on one type of name do not restrict the
/// others.
fn permitted(names: &ServingNames) -> Vec<GeneralSubtree> {
    let dns_names = names.dns_names().chain(["localhost"]);
    let loopback = [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
    let addresses = names.ip_addresses().iter().copied().chain(loopback);
    let mut subtrees = Vec::new();
    for subtree in dns_names
        .map(|name| GeneralSubtree::DnsName(name.to_owned()))
        .chain(addresses.map(|address| GeneralSubtree::IpAddress(single(address))))
    {
        if !subtrees.contains(&subtree) {
            subtrees.push(subtree);
        }
    }
    subtrees
}

fn single(address: IpAddr) -> CidrSubnet {
    CidrSubnet::from_addr_prefix(address, if address.is_ipv4() { 32 } else { 128 })
}
