//! Metadata by which records and events name the object of a request.

use lucid_chain::PodView;
use lucid_text::json::{Error, Reader, Text};
use lucid_webhook::AdmissionRequest;

/// Name and owners of an object. Empty if they cannot be parsed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Metadata<'a> {
    name: Text<'a>,
    generate_name: Text<'a>,
    pub(crate) owner_references: Option<&'a str>,
}

impl<'a> Metadata<'a> {
    pub(crate) fn of(request: &'a AdmissionRequest, pod: Option<&'a PodView<'_>>) -> Self {
        match pod {
            Some(pod) => Self {
                name: pod.name().unwrap_or_default().into(),
                generate_name: pod.generate_name().unwrap_or_default().into(),
                owner_references: pod.owner_references(),
            },
            None => {
                let json = request.object.as_ref().and_then(|object| str::from_utf8(object.as_bytes()).ok());
                let metadata = json.map(|json| Reader::new(json).only_member("metadata", Self::read));
                metadata.and_then(Result::ok).flatten().unwrap_or_default()
            }
        }
    }

    fn read(reader: &mut Reader<'a>) -> Result<Self, Error> {
        let (mut name, mut generate_name, mut owner_references) = (None, None, None);
        reader.object(|reader, key| match key {
            "name" => reader.member(&mut name, Reader::text),
            "generateName" => reader.member(&mut generate_name, Reader::text),
            "ownerReferences" => reader.member(&mut owner_references, Reader::raw),
            _ => reader.skip(),
        })?;
        let (name, generate_name) = (name.unwrap_or_default(), generate_name.unwrap_or_default());
        Ok(Self { name, generate_name, owner_references })
    }

    /// Returns the name or, during creation, the `generateName` of an object without a name.
    pub(crate) fn name(&self) -> &str {
        if self.name.is_empty() { &self.generate_name } else { &self.name }
    }
}
