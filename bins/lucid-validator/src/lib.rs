//! The Lucid validator: refuses pods whose auditor images are not notarized
