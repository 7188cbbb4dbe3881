//! Certificate extensions (RFC 5280, section 4.2), with the rules of Go's `crypto/x509`.

use std::collections::BTreeSet;

use super::reader::{
    INTEGER, OBJECT_IDENTIFIER, OCTET_STRING, Reader, SEQUENCE, components, constructed, context, is_integer,
    whole,
};
use super::uri::{self, is_domain};
use super::{Invalid, malformed};

/// 2.5.29.37.0.
const ANY_USAGE: &[u8] = &[0x55, 0x1d, 37, 0];
/// 2.5.29.32.0.
const ANY_POLICY: &[u8] = &[0x55, 0x1d, 32, 0];

#[derive(Debug, Default)]
pub(crate) struct Extensions {
    pub(crate) basic_constraints: Option<BasicConstraints>,
    pub(crate) alternative_names: AlternativeNames,
    pub(crate) has_name_constraints: bool,
    pub(super) subject_key_identifier: Option<Vec<u8>>,
    /// First octet.
    key_usage: Option<u8>,
    extended_key_usage: Option<Vec<Vec<u8>>>,
    /// First critical extension that Go does not process.
    unhandled: Option<Vec<u8>>,
    /// The policies of the chain decide about its validity.
    needs_policies: bool,
}

/// Basic constraints (RFC 5280, section 4.2.1.9).
#[derive(Debug, Clone, Copy)]
pub(crate) struct BasicConstraints {
    pub(crate) is_ca: bool,
    pub(crate) path_length: Option<u64>,
}

/// Subject alternative names (RFC 5280, section 4.2.1.6).
#[derive(Debug, Default)]
pub(crate) struct AlternativeNames {
    pub(crate) dns_names: Vec<String>,
    /// In network byte order.
    pub(crate) ip_addresses: Vec<Vec<u8>>,
    /// A name cannot be compared with name constraints.
    pub(crate) has_unmatchable: bool,
    /// There is a DNS name, an IP address, an email address or a URI.
    is_known: bool,
}

impl Extensions {
    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self, Invalid> {
        let all = reader.each(SEQUENCE, |reader| {
            reader.nested(SEQUENCE, |reader| {
                Some((reader.object_identifier()?, reader.boolean()?, reader.read(OCTET_STRING)?))
            })
        });
        let (mut extensions, mut seen) = (Self::default(), BTreeSet::new());
        for (kind, is_critical, value) in all.ok_or_else(|| malformed("extensions"))? {
            if !seen.insert(kind) {
                return Err(Invalid::new(name(kind), "expected it once, found it twice"));
            }
            // RFC 5280 forbids it, and Go rejects it.
            if is_critical && matches!(kind, [0x55, 0x1d, 14 | 35] | [0x2b, 6, 1, 5, 5, 7, 1, 1]) {
                return Err(Invalid::new(
                    name(kind),
                    "expected a non-critical extension, found a critical one",
                ));
            }
            let is_handled = extensions.add(kind, value).ok_or_else(|| malformed(name(kind)))?;
            if is_critical && !is_handled && extensions.unhandled.is_none() {
                extensions.unhandled = Some(kind.to_vec());
            }
        }
        Ok(extensions)
    }

    /// Adds an extension. Returns `false` if Go does not process it, or `None` if it is malformed.
    fn add(&mut self, kind: &[u8], value: &[u8]) -> Option<bool> {
        match kind {
            [0x55, 0x1d, 14] => {
                self.subject_key_identifier = Some(whole(value, |it| it.read(OCTET_STRING))?.to_vec());
            }
            [0x55, 0x1d, 15] => {
                let (bits, _) = whole(value, Reader::bit_string)?;
                self.key_usage = Some(bits.first().copied().unwrap_or_default());
            }
            [0x55, 0x1d, 17] => {
                self.alternative_names = whole(value, AlternativeNames::read)?;
                return Some(self.alternative_names.is_known);
            }
            [0x55, 0x1d, 19] => self.basic_constraints = Some(whole(value, BasicConstraints::read)?),
            [0x55, 0x1d, 30] => {
                self.has_name_constraints = true;
                return whole(value, name_constraints);
            }
            [0x55, 0x1d, 31] => drop(whole(value, |it| it.each(SEQUENCE, distribution_point))?),
            [0x55, 0x1d, 32] => policies(value)?,
            [0x55, 0x1d, 33] => {
                let mappings = whole(value, |it| it.each(SEQUENCE, policy_mapping))?;
                self.needs_policies |= mappings.into_iter().flatten().any(|policy| policy == ANY_POLICY);
            }
            [0x55, 0x1d, 35] => whole(value, |reader| {
                reader.nested(SEQUENCE, |reader| {
                    reader.optional(context(0))?;
                    reader.skip_rest();
                    Some(())
                })
            })?,
            [0x55, 0x1d, 36] => {
                self.needs_policies |= whole(value, |reader| {
                    reader.nested(SEQUENCE, |reader| {
                        let [explicit, mapping] =
                            [reader.optional(context(0))?, reader.optional(context(1))?];
                        let is_small = |bytes: &[u8]| is_integer(bytes) && bytes.len() <= 8;
                        let is_valid = explicit.into_iter().chain(mapping).all(is_small);
                        is_valid.then_some(explicit.is_some())
                    })
                })?;
            }
            [0x55, 0x1d, 37] => {
                let usages = whole(value, |it| it.each(SEQUENCE, Reader::object_identifier))?;
                self.extended_key_usage = Some(usages.into_iter().map(<[u8]>::to_vec).collect());
            }
            [0x55, 0x1d, 54] => {
                whole(value, |it| it.integer().filter(|bytes| bytes.len() <= 8))?;
            }
            [0x2b, 6, 1, 5, 5, 7, 1, 1] => drop(whole(value, |it| it.each(SEQUENCE, access_description))?),
            _ => return Some(false),
        }
        Some(true)
    }

    /// Returns `true` if the key usage (section 4.2.1.3), if any, includes keyCertSign, which is its bit 5.
    pub(crate) fn may_sign(&self) -> bool {
        self.key_usage.is_none_or(|bits| bits & 0b0000_0100 != 0)
    }

    /// Returns `true` if the extended key usage (section 4.2.1.12), if any, includes `purpose` or any purpose.
    pub(crate) fn is_for(&self, purpose: &[u8]) -> bool {
        let usages = self.extended_key_usage.as_ref();
        usages.is_none_or(|usages| usages.iter().any(|usage| [purpose, ANY_USAGE].contains(&&**usage)))
    }

    /// Fails if there is a critical extension that Go does not process.
    pub(crate) fn check_critical(&self) -> Result<(), Invalid> {
        let problem = "expected one that API servers support, found a critical one that they do not";
        self.unhandled.as_ref().map_or(Ok(()), |kind| Err(Invalid::new(name(kind), problem)))
    }

    /// Fails if Go, unlike rustls-webpki, may reject a chain with this certificate below its anchor.
    pub(crate) fn check_below_anchor(&self) -> Result<(), Invalid> {
        self.check_critical()?;
        if self.needs_policies {
            let problem = "expected policies that do not restrict the chain, found restricting ones";
            return Err(Invalid::new("policyConstraints or policyMappings", problem));
        }
        Ok(())
    }
}

impl BasicConstraints {
    fn read(reader: &mut Reader<'_>) -> Option<Self> {
        reader.nested(SEQUENCE, |reader| {
            let is_ca = reader.boolean()?;
            let path_length = match reader.optional(INTEGER)? {
                None => None,
                Some(bytes) => Some(unsigned(bytes)?),
            };
            Some(Self { is_ca, path_length })
        })
    }
}

/// Returns the value of an `INTEGER` from 0 to 2^63 - 1.
pub(super) fn unsigned(bytes: &[u8]) -> Option<u64> {
    let is_valid = is_integer(bytes) && bytes.len() <= 8 && bytes.first()? & 0x80 == 0;
    is_valid.then(|| bytes.iter().fold(0, |value, byte| value << 8 | u64::from(*byte)))
}

impl AlternativeNames {
    fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let mut all = Self::default();
        reader.each(SEQUENCE, |reader| {
            let name = reader.element()?;
            let text = || std::str::from_utf8(name.content).ok().filter(|text| text.is_ascii());
            all.is_known |= matches!(name.tag, 0x81 | 0x82 | 0x86 | 0x87);
            match name.tag {
                // rfc822Name, dNSName, uniformResourceIdentifier and iPAddress.
                0x81 => all.has_unmatchable |= !is_mailbox(text()?),
                0x82 => {
                    let name = text()?;
                    all.has_unmatchable |= !is_domain(name);
                    all.dns_names.push(name.to_owned());
                }
                0x86 => all.has_unmatchable |= !uri::parse(text()?)?.has_domain,
                0x87 => match name.content.len() {
                    4 | 16 => all.ip_addresses.push(name.content.to_vec()),
                    _ => return None,
                },
                _ => {}
            }
            Some(())
        })?;
        Some(all)
    }
}

/// Returns `false` if there is a constraint on another kind of name than Go's.
fn name_constraints(reader: &mut Reader<'_>) -> Option<bool> {
    let subtree = |reader: &mut Reader<'_>| {
        reader.nested(SEQUENCE, |reader| {
            let base = reader.element()?;
            reader.skip_rest();
            is_constraint(base.tag, base.content)
        })
    };
    let mut all = Vec::new();
    reader.nested(SEQUENCE, |reader| {
        for subtrees in [constructed(0), constructed(1)] {
            // Go reads an empty list as none.
            if reader.next_tag() == Some(subtrees) {
                all.extend(reader.each(subtrees, subtree)?);
            }
        }
        Some(())
    })?;
    (!all.is_empty()).then(|| all.iter().all(|is_known| *is_known))
}

/// Returns `false` if Go does not process constraints of this kind, or `None` if the constraint is malformed.
fn is_constraint(tag: u8, content: &[u8]) -> Option<bool> {
    let text = || std::str::from_utf8(content).ok().filter(|text| text.is_ascii());
    let is_domain =
        |text: &str| is_domain(text.strip_prefix('.').filter(|rest| !rest.is_empty()).unwrap_or(text));
    let is_valid = match tag {
        0x81 => {
            let constraint = text()?;
            if constraint.contains('@') { is_mailbox(constraint) } else { is_domain(constraint) }
        }
        0x82 => is_domain(text()?),
        0x86 => {
            let constraint = text()?;
            constraint.parse::<std::net::IpAddr>().is_err() && is_domain(constraint)
        }
        0x87 => match content.len() {
            length @ (8 | 32) => is_mask(&content[length / 2..]),
            _ => false,
        },
        _ => return Some(false),
    };
    is_valid.then_some(true)
}

/// Returns `true` for any number of one bits and then zero bits.
fn is_mask(mask: &[u8]) -> bool {
    let mut rest = mask.iter().skip_while(|byte| **byte == 0xff);
    rest.next().is_none_or(|byte| byte.leading_ones() == byte.count_ones()) && rest.all(|byte| *byte == 0)
}

/// Returns `true` for mailboxes (RFC 2821) without quotation.
fn is_mailbox(text: &str) -> bool {
    let is_local = |local: &str| {
        let is_atom = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-/=?^_`{|}~".contains(&byte);
        local.split('.').all(|atom| !atom.is_empty() && atom.bytes().all(is_atom))
    };
    text.split_once('@').is_some_and(|(local, domain)| {
        is_local(local) && !domain.is_empty() && !domain.contains('@') && is_domain(domain)
    })
}

fn distribution_point(reader: &mut Reader<'_>) -> Option<()> {
    reader.nested(SEQUENCE, |reader| {
        if let Some(name) = reader.optional(constructed(0))? {
            // Go rejects names relative to the issuer.
            whole(name, |reader| {
                reader.nested(constructed(0), |reader| {
                    while reader.optional(context(6))?.is_some() {}
                    reader.skip_rest();
                    Some(())
                })
            })?;
        }
        reader.skip_rest();
        Some(())
    })
}

fn policies(value: &[u8]) -> Option<()> {
    let mut seen = BTreeSet::new();
    whole(value, |reader| {
        reader.each(SEQUENCE, |reader| {
            reader.nested(SEQUENCE, |reader| {
                let policy = reader.read(OBJECT_IDENTIFIER)?;
                reader.skip_rest();
                // Components may have any number of bits.
                let is_valid = policy
                    .split_inclusive(|byte| byte & 0x80 == 0)
                    .all(|component| component.first() != Some(&0x80));
                let is_complete = policy.last().is_some_and(|byte| byte & 0x80 == 0);
                (is_valid && is_complete && seen.insert(policy)).then_some(())
            })
        })
    })?;
    Some(())
}

fn policy_mapping<'a>(reader: &mut Reader<'a>) -> Option<[&'a [u8]; 2]> {
    reader.nested(SEQUENCE, |reader| {
        let mapping = [reader.read(OBJECT_IDENTIFIER)?, reader.read(OBJECT_IDENTIFIER)?];
        reader.skip_rest();
        Some(mapping)
    })
}

fn access_description(reader: &mut Reader<'_>) -> Option<()> {
    reader.nested(SEQUENCE, |reader| {
        reader.object_identifier()?;
        reader.optional(context(6))?;
        reader.skip_rest();
        Some(())
    })
}

/// Returns the name of an extension in RFC 5280, or its object identifier.
fn name(kind: &[u8]) -> String {
    let name = match kind {
        [0x55, 0x1d, 14] => "subjectKeyIdentifier",
        [0x55, 0x1d, 15] => "keyUsage",
        [0x55, 0x1d, 17] => "subjectAltName",
        [0x55, 0x1d, 19] => "basicConstraints",
        [0x55, 0x1d, 30] => "nameConstraints",
        [0x55, 0x1d, 31] => "cRLDistributionPoints",
        [0x55, 0x1d, 32] => "certificatePolicies",
        [0x55, 0x1d, 33] => "policyMappings",
        [0x55, 0x1d, 35] => "authorityKeyIdentifier",
        [0x55, 0x1d, 36] => "policyConstraints",
        [0x55, 0x1d, 37] => "extKeyUsage",
        [0x55, 0x1d, 54] => "inhibitAnyPolicy",
        [0x2b, 6, 1, 5, 5, 7, 1, 1] => "authorityInfoAccess",
        _ => {
            let components: Vec<_> =
                components(kind).unwrap_or_default().iter().map(u64::to_string).collect();
            return format!("extension {}", components.join("."));
        }
    };
    name.to_owned()
}
