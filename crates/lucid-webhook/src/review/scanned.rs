//! Fast path of parsing: reads the envelope member by member and skips over the objects in it.

use bytes::Bytes;
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::{API_VERSION, KIND, WireRequest};
use crate::json::{Cursor, RawObject};

/// Parses the request of a review. Returns `None` for anything unusual, valid or not; the slow path decides then.
pub(super) fn read(body: &Bytes) -> Option<WireRequest<RawObject>> {
    str::from_utf8(body).ok()?;
    let mut cursor = Cursor::new(body);
    let (mut api_version, mut kind, mut request) = (None::<&str>, None::<&str>, None);
    cursor.pass(b'{')?;
    let mut first = true;
    while let Some(key) = cursor.next_key(&mut first)? {
        match key {
            "apiVersion" => once(&mut api_version, &mut cursor)?,
            "kind" => once(&mut kind, &mut cursor)?,
            "request" if request.is_none() => request = Some(read_request(&mut cursor, body)?),
            "request" => return None,
            _ => drop(cursor.read::<IgnoredAny>()?),
        }
    }
    cursor.pass(b'}')?;
    let is_review = cursor.is_at_end() && api_version == Some(API_VERSION) && kind == Some(KIND);
    request.filter(|_| is_review)
}

fn read_request(cursor: &mut Cursor<'_>, body: &Bytes) -> Option<WireRequest<RawObject>> {
    let (mut uid, mut name, mut namespace, mut operation) = (None, None, None, None);
    let (mut kind, mut resource, mut sub_resource) = (None, None, None);
    let (mut request_kind, mut request_resource, mut request_sub_resource) = (None, None, None);
    let (mut user_info, mut dry_run) = (None, None);
    let (mut object, mut old_object, mut options) = (None, None, None);
    cursor.pass(b'{')?;
    let mut first = true;
    while let Some(key) = cursor.next_key(&mut first)? {
        match key {
            "uid" => once(&mut uid, cursor)?,
            "name" => once(&mut name, cursor)?,
            "namespace" => once(&mut namespace, cursor)?,
            "operation" => once(&mut operation, cursor)?,
            "kind" => once(&mut kind, cursor)?,
            "resource" => once(&mut resource, cursor)?,
            "subResource" => once(&mut sub_resource, cursor)?,
            "requestKind" => once(&mut request_kind, cursor)?,
            "requestResource" => once(&mut request_resource, cursor)?,
            "requestSubResource" => once(&mut request_sub_resource, cursor)?,
            "userInfo" => once(&mut user_info, cursor)?,
            "dryRun" => once(&mut dry_run, cursor)?,
            "object" => object_once(&mut object, cursor, body)?,
            "oldObject" => object_once(&mut old_object, cursor, body)?,
            "options" => object_once(&mut options, cursor, body)?,
            _ => drop(cursor.read::<IgnoredAny>()?),
        }
    }
    cursor.pass(b'}')?;
    Some(WireRequest {
        uid: uid?,
        name: name.unwrap_or_default(),
        namespace,
        operation: operation?,
        kind: kind.unwrap_or_default(),
        resource: resource.unwrap_or_default(),
        sub_resource,
        request_kind: request_kind.unwrap_or_default(),
        request_resource: request_resource.unwrap_or_default(),
        request_sub_resource,
        user_info: user_info.unwrap_or_default(),
        dry_run,
        object: object.flatten(),
        old_object: old_object.flatten(),
        options: options.flatten(),
    })
}

/// Reads a member that may occur once.
fn once<'a, T: Deserialize<'a>>(member: &mut Option<T>, cursor: &mut Cursor<'a>) -> Option<()> {
    member.replace(cursor.read()?).is_none().then_some(())
}

/// Reads a member that may occur once and is an object or null.
fn object_once(member: &mut Option<Option<RawObject>>, cursor: &mut Cursor<'_>, body: &Bytes) -> Option<()> {
    let value = match cursor.peek()? {
        b'{' => Some(RawObject::pass(cursor, body)?),
        _ => {
            let () = cursor.read()?;
            None
        }
    };
    member.replace(value).is_none().then_some(())
}
