//! The JSON Schema of a model file: generated from the types that read it, and as wide as the reader is.

use std::mem;

use serde_json::{Map, Value, json};

use super::ModelDocument;
use crate::{
    VfKey, decode,
    names::{RESERVED_GUEST_NAME, SCALARS},
    spellings::ALIASES,
};

/// The first line of a model, by which editors with the YAML language server find the schema of this file: `schema/` in the
/// repository is what [`schema`] gives.
pub const MODELINE: &str = "# yaml-language-server: $schema=https://raw.githubusercontent.com/penstock/penstock/main/schema/model.schema.json";

/// The types in the schema that have the attributes of a VF.
const OF_VFS: [&str; 4] = ["Function", "VfSettings", "TenantVf", "UplinkVf"];

/// Those that the NIC of a container has.
const OF_CONTAINERS: [VfKey; 5] =
    [VfKey::Vlan, VfKey::Qos, VfKey::VlanProto, VfKey::Spoofchk, VfKey::MaxTxRate];

/// How the reader takes whole numbers that are quoted, or written as only YAML writes them.
const WHOLE_NUMBER: &str = "^([+-]?(0|[1-9][0-9]*)|0x[0-9a-fA-F]+|0o[0-7]+)$";

/// The JSON Schema of a model file. Whatever the reader takes it takes; what no pattern and no range can say (a NIC that is not
/// there, an address given twice) it lets pass.
pub fn schema() -> Value {
    let mut schema = schemars::schema_for!(ModelDocument).to_value();
    widen(&mut schema);
    let of_vfs = OF_VFS
        .into_iter()
        .flat_map(|name| VfKey::ALL.iter().map(move |key| (name, key.name(), key.aliases())));
    let of_containers = OF_CONTAINERS.iter().map(|key| ("TenantNic", key.name(), key.aliases()));
    for (name, key, spellings) in of_vfs.chain(of_containers).chain(ALIASES) {
        let definition = &mut schema["$defs"][name];
        match key {
            "" => {
                if let Some(words) = definition["oneOf"].as_array_mut() {
                    words.push(
                        json!({ "type": "string", "enum": spellings, "description": "Other spellings." }),
                    );
                }
            }
            _ => {
                let meant = definition["properties"][key].clone();
                for spelling in spellings {
                    definition["properties"][*spelling] = meant.clone();
                }
            }
        }
    }
    for (place, name) in [
        ("/properties/nics", "NicName"),
        // A drive is called as a NIC is.
        ("/properties/drives", "NicName"),
        ("/properties/guests", "GuestName"),
        ("/$defs/Guest/properties/nics", "NicName"),
        ("/$defs/Board/properties/emulation", "NicName"),
    ] {
        let pattern = schema["$defs"][name]["pattern"].clone();
        if let Some(map) = schema.pointer_mut(place) {
            map["propertyNames"] = json!({ "pattern": pattern });
        }
    }
    if let Some(names) = schema.pointer_mut("/properties/guests/propertyNames") {
        names["not"] = json!({ "const": RESERVED_GUEST_NAME });
    }
    schema["$comment"] = json!("Made by `penstock schema` from the types that read a model.");
    schema
}

/// Makes a schema as wide as the reader: words for booleans, numbers as text, text that YAML takes for a number, and nothing behind
/// a key.
fn widen(schema: &mut Value) {
    let Value::Object(object) = schema else { return };
    for key in ["properties", "$defs"] {
        for (_, child) in object.get_mut(key).and_then(Value::as_object_mut).into_iter().flatten() {
            widen(child);
            if key == "properties" {
                // What a key without a value is by default is in its description.
                take_nothing(child);
            }
        }
    }
    for key in ["anyOf", "oneOf"] {
        object.get_mut(key).and_then(Value::as_array_mut).into_iter().flatten().for_each(widen);
    }
    if let Some(items) = object.get_mut("items") {
        widen(items);
    }
    if let Some(values) = object.get_mut("additionalProperties").filter(|values| values.is_object()) {
        widen(values);
        // `NET0:` is a NIC, `a:` a guest, and `0:` a VF; what emulates a NIC is a word, and a guest's own NIC has no default.
        if matches!(
            values["$ref"].as_str(),
            Some("#/$defs/Nic" | "#/$defs/Drive" | "#/$defs/Guest" | "#/$defs/TenantVf")
        ) {
            take_nothing(values);
        }
    }
    widen_scalar(object);
}

fn types(object: &Map<String, Value>) -> Vec<String> {
    match object.get("type") {
        Some(Value::String(one)) => vec![one.clone()],
        Some(Value::Array(many)) => many.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
        _ => Vec::new(),
    }
}

fn widen_scalar(object: &mut Map<String, Value>) {
    object.remove("format");
    if object.get("default").is_some_and(|default| default.is_null() || default.is_object()) {
        object.remove("default");
    }
    let mut types = types(object);
    let nothing = types.iter().any(|name| name == "null");
    types.retain(|name| name != "null");
    let kept = ["const", "enum", "pattern"].iter().any(|key| object.contains_key(*key));
    let wider: &[&str] = match types.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["boolean"] => {
            object.remove("type");
            let words = decode::TRUE.iter().chain(&decode::FALSE).map(|word| json!(word));
            let all =
                [json!(true), json!(false)].into_iter().chain(words).chain(nothing.then_some(Value::Null));
            object.insert("enum".to_owned(), all.collect());
            return;
        }
        ["integer"] if !kept => {
            object.insert("pattern".to_owned(), json!(WHOLE_NUMBER));
            &["integer", "string"]
        }
        ["string"] if !kept => &SCALARS,
        _ => return,
    };
    let nothing = nothing.then_some("null");
    object.insert("type".to_owned(), wider.iter().copied().chain(nothing).map(|name| json!(name)).collect());
}

/// Also takes a key with nothing behind it.
fn take_nothing(schema: &mut Value) {
    let Value::Object(object) = schema else { return };
    if let Some(Value::Array(words)) = object.get_mut("enum") {
        if !words.contains(&Value::Null) {
            words.push(Value::Null);
        }
    } else if object.contains_key("type") {
        let mut types = types(object);
        if !types.iter().any(|name| name == "null") {
            types.push("null".to_owned());
        }
        object.insert("type".to_owned(), json!(types));
    } else if let Some(Value::Array(any)) = object.get_mut("anyOf") {
        if !any.iter().any(|one| one["type"] == "null") {
            any.push(json!({ "type": "null" }));
        }
    } else if let Some(reference) = object.remove("$ref") {
        let rest = mem::take(object);
        object.insert("anyOf".to_owned(), json!([{ "$ref": reference }, { "type": "null" }]));
        object.extend(rest);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde::{Deserialize, Deserializer, de::Visitor, forward_to_deserialize_any};

    use super::*;
    use crate::{
        Allow, DriveMatch, NicMatch, VfSettings,
        document::{
            BoardDocument, BootDocument, DeviceDocument, DnsDocument, DriveDocument, FreeDocument,
            FunctionDocument, GenerateDocument, GuestDocument, GuestRealtimeDocument, MeasureDocument,
            NicDocument, RealtimeDocument, RouteDocument, TenantNicDocument,
            drive::GuestDriveDocument,
            measure::StorageDocument,
            tenant::{TenantVfDocument, UplinkDocument},
        },
    };

    /// Learns which keys a type reads, all its spellings of them.
    struct Keys<'a>(&'a mut BTreeSet<&'static str>);

    impl<'de> Deserializer<'de> for Keys<'_> {
        type Error = serde::de::value::Error;

        fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Self::Error> {
            Err(serde::de::Error::custom("this is no struct"))
        }

        fn deserialize_struct<V: Visitor<'de>>(
            self,
            _: &'static str,
            keys: &'static [&'static str],
            _: V,
        ) -> Result<V::Value, Self::Error> {
            self.0.extend(keys);
            Err(serde::de::Error::custom("that was all"))
        }

        forward_to_deserialize_any! {
            bool i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 char str string bytes byte_buf option unit unit_struct
            newtype_struct seq tuple tuple_struct map enum identifier ignored_any
        }
    }

    fn read<'de, T: Deserialize<'de>>() -> BTreeSet<&'static str> {
        let mut keys = BTreeSet::new();
        assert!(T::deserialize(Keys(&mut keys)).is_err());
        keys
    }

    #[test]
    fn the_schema_has_every_key_in_every_spelling_that_is_read() {
        let schema = schema();
        let cases = [
            ("", read::<ModelDocument>()),
            ("Nic", read::<NicDocument>()),
            ("NicMatch", read::<NicMatch>()),
            ("Free", read::<FreeDocument>()),
            ("Drive", read::<DriveDocument>()),
            ("DriveMatch", read::<DriveMatch>()),
            ("GuestDrive", read::<GuestDriveDocument>()),
            ("VfSettings", read::<VfSettings>()),
            ("Guest", read::<GuestDocument>()),
            ("TenantNic", read::<TenantNicDocument>()),
            ("TenantVf", read::<TenantVfDocument>()),
            ("UplinkVf", read::<UplinkDocument>()),
            ("Allow", read::<Allow>()),
            ("Device", read::<DeviceDocument>()),
            ("Boot", read::<BootDocument>()),
            ("Generate", read::<GenerateDocument>()),
            ("Function", read::<FunctionDocument>()),
            ("Route", read::<RouteDocument>()),
            ("Dns", read::<DnsDocument>()),
            ("Board", read::<BoardDocument>()),
            ("Measure", read::<MeasureDocument>()),
            ("StorageTarget", read::<StorageDocument>()),
            ("Realtime", read::<RealtimeDocument>()),
            ("GuestRealtime", read::<GuestRealtimeDocument>()),
        ];
        let mut with_keys: BTreeSet<&str> = BTreeSet::new();
        for (name, keys) in &cases {
            let object = if name.is_empty() { &schema } else { &schema["$defs"][name] };
            let known: BTreeSet<&str> =
                object["properties"].as_object().unwrap().keys().map(String::as_str).collect();
            assert_eq!(known, *keys, "{name}");
            with_keys.insert(name);
        }
        for (name, definition) in schema["$defs"].as_object().unwrap() {
            assert!(
                definition.get("properties").is_none() || with_keys.contains(name.as_str()),
                "nothing is known of the keys of {name}"
            );
        }
    }
}
