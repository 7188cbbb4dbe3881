//! Numbers and codes of a fixed shape. Sources: ISO/IEC 7812, ICAO 9303, the issuing authorities, and the recognizers of
//! Microsoft Presidio, whose entity names are used.

use super::checks;

#[derive(Debug)]
pub(super) struct Format {
    pub(super) entity: &'static str,
    /// Verifies digits and capitals without separators.
    pub(super) check: fn(&[u8]) -> bool,
    /// Shapes that suffice: see [`match_shape`](super::text::match_shape).
    pub(super) strong: &'static [&'static str],
    /// Shapes that need a context word, unless the options name the entity.
    pub(super) weak: &'static [&'static str],
    pub(super) context: &'static [&'static str],
}

const fn format(
    entity: &'static str,
    check: fn(&[u8]) -> bool,
    strong: &'static [&'static str],
    weak: &'static [&'static str],
    context: &'static [&'static str],
) -> Format {
    Format { entity, check, strong, weak, context }
}

const CARD: &[&str] =
    &["card", "credit", "debit", "visa", "mastercard", "amex", "maestro", "karte", "tarjeta", "carte"];
const SSN: &[&str] = &["ssn", "ssns", "social", "security"];
const MEDICARE: &[&str] = &["medicare", "mbi", "beneficiary"];
const SOUTH_KOREAN: &[&str] =
    &["korea", "korean", "rrn", "frn", "resident", "주민등록번호", "외국인등록번호"];
const DIGITS_10: &str = "9999999999";
const DIGITS_11: &str = "99999999999";
const DIGITS_13: &str = "9999999999999";

/// The formats, those of stronger checks first.
pub(super) const FORMATS: &[Format] = &[
    format(
        "CREDIT_CARD",
        checks::card,
        &[
            "9999999999999999",
            "9999~9999~9999~9999",
            "999999999999999",
            "9999~999999~99999",
            "99999999999999",
            "9999~999999~9999",
            "9999~9999~9999~9999~999",
        ],
        &[DIGITS_13, "99999999999999999", "999999999999999999", "9999999999999999999"],
        CARD,
    ),
    format("CREDIT_CARD", checks::old_card, &[], &["999999999999999"], CARD),
    format(
        "FR_NIR",
        checks::fr_nir,
        &["9~99~99~9X~999~999~99"],
        &["999999X99999999"],
        &["nir", "insee", "sécu", "sécurité", "social"],
    ),
    format("AU_ABN", checks::au_abn, &["99 999 999 999"], &[DIGITS_11], &["abn", "australian", "business"]),
    format("BR_CPF", checks::br_cpf, &["999.999.999-99"], &[DIGITS_11, "999999999-99"], &["cpf"]),
    format("DE_SOCIAL_SECURITY", checks::de_social_security, &["99999999A999", "99 999999 A 999"], &[], &[]),
    format(
        "DE_HEALTH_INSURANCE",
        checks::de_health_insurance,
        &[],
        &["A999999999"],
        &["krankenversicherung", "krankenkasse", "versicherten", "gesundheitskarte", "egk", "kvnr"],
    ),
    format(
        "DE_TAX_ID",
        checks::de_tax_id,
        &["99 999 999 999"],
        &[DIGITS_11],
        &["steuer", "idnr", "tin", "identifikationsnummer", "tax"],
    ),
    format(
        "DE_ID_CARD",
        checks::de_id_card,
        &[],
        &["AXXXXXXX9"],
        &["ausweis", "personalausweis", "reisepass", "npa"],
    ),
    format("DE_ID_CARD", checks::de_old_id_card, &[], &["A99999999"], &["ausweis", "personalausweis"]),
    format(
        "ES_NIF",
        checks::es_nif,
        &["99999999A", "99999999-A"],
        &["9999999A", "9999999-A"],
        &["nif", "dni"],
    ),
    format("ES_NIE", checks::es_nie, &["A9999999A", "A9999999-A", "A-9999999-A"], &[], &[]),
    format("FI_PERSONAL_IDENTITY_CODE", checks::fi_hetu, &["999999A999X", "999999-999X"], &[], &[]),
    format(
        "IN_AADHAAR",
        checks::in_aadhaar,
        &["9999~9999~9999"],
        &["999999999999"],
        &["aadhaar", "aadhar", "uidai", "आधार"],
    ),
    format("IN_PAN", checks::in_pan, &["AAAAA9999A"], &[], &[]),
    format("IN_PAN", checks::in_any_pan, &[], &["AAAAA9999A"], &["pan"]),
    format("IT_FISCAL_CODE", checks::it_fiscal_code, &["AAAAAAXXAXXAXXXA"], &[], &[]),
    format("KR_RRN", checks::kr_rrn, &["999999-9999999"], &[DIGITS_13], SOUTH_KOREAN),
    format("KR_FRN", checks::kr_frn, &["999999-9999999"], &[DIGITS_13], SOUTH_KOREAN),
    format(
        "SE_PERSONNUMMER",
        checks::se_personnummer,
        &["999999-9999", "99999999-9999"],
        &[DIGITS_10, "999999999999"],
        &["personnummer", "personnr", "pnr", "samordningsnummer", "swedish", "svensk"],
    ),
    format("SG_NRIC_FIN", checks::sg_nric, &["A9999999A"], &[], &[]),
    format(
        "TH_TNIN",
        checks::th_tnin,
        &["9~9999~99999~99~9"],
        &[DIGITS_13],
        &["thai", "tnin", "thailand", "ประชาชน"],
    ),
    format(
        "UK_NINO",
        checks::uk_nino,
        &["AA999999A", "AA 999999A", "AA 99 99 99 A", "AA 999999 A"],
        &[],
        &[],
    ),
    format(
        "US_ITIN",
        checks::us_itin,
        &["999-99-9999"],
        &["999999999", "999-999999", "99999-9999", "999 99 9999"],
        &["itin", "taxpayer"],
    ),
    format("US_MBI", checks::us_mbi, &["9XXX-XXX-XXXX"], &["9XXXXXXXXXX"], MEDICARE),
    format(
        "US_SSN",
        checks::us_ssn,
        &["999-99-9999"],
        &["999 99 9999", "999.99.9999", "999999999", "999-999999", "99999-9999"],
        SSN,
    ),
    format("ZA_ID_NUMBER", checks::za_id_number, &[DIGITS_13], &[], &[]),
    format("TR_NATIONAL_ID", checks::tr_national_id, &[], &[DIGITS_11], &["kimlik", "tckn", "turkish", "tc"]),
    format("PL_PESEL", checks::pl_pesel, &[], &[DIGITS_11], &["pesel"]),
    format("NG_NIN", checks::ng_nin, &[], &[DIGITS_11], &["nin", "nimc", "nigerian", "nigeria"]),
    format("UK_NHS", checks::uk_nhs, &[], &["999~999~9999", DIGITS_10], &["nhs", "health"]),
    format("US_NPI", checks::us_npi, &[], &[DIGITS_10, "9999~999~999"], &["npi", "provider"]),
    format("AU_MEDICARE", checks::au_medicare, &["9999 99999 9"], &[DIGITS_10], MEDICARE),
    format("AU_TFN", checks::au_tfn, &[], &["999 999 999", "999999999"], &["tfn", "tax"]),
    format("AU_ACN", checks::au_acn, &[], &["999 999 999", "999999999"], &["acn", "australian", "company"]),
    format(
        "CA_SIN",
        checks::ca_sin,
        &["999-999-999"],
        &["999 999 999", "999999999"],
        &["sin", "nas", "canadian", "social", "assurance"],
    ),
    format(
        "NL_BSN",
        checks::nl_bsn,
        &[],
        &["999999999", "9999.99.999"],
        &["bsn", "burgerservicenummer", "sofinummer"],
    ),
    format(
        "ABA_ROUTING_NUMBER",
        checks::aba,
        &[],
        &["999999999", "9999-9999-9"],
        &["aba", "routing", "rtn", "bank"],
    ),
    format("MEDICAL_LICENSE", checks::us_dea, &[], &["AX9999999"], &["dea", "certificate", "prescriber"]),
    format("MAC_ADDRESS", checks::mac_in_groups, &["XX:XX:XX:XX:XX:XX", "XX-XX-XX-XX-XX-XX"], &[], &[]),
    format("MAC_ADDRESS", checks::mac, &["XXXX.XXXX.XXXX"], &[], &[]),
];
