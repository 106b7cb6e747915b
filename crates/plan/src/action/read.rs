//! An action as it is read: its name tells the group.

use std::{fmt, sync::LazyLock};

use serde::{
    Deserialize, Deserializer, de,
    de::{DeserializeSeed, EnumAccess, Error, IntoDeserializer, Visitor, value::EnumAccessDeserializer},
    forward_to_deserialize_any,
};

use super::{
    Action, BootAction, DriveAction, FileAction, FunctionAction, GuestAction, RealTimeAction, with_groups,
};

/// The names of a group's actions, as serde derives them.
#[derive(Debug)]
struct Names(&'static [&'static str]);

impl Names {
    fn of<A: for<'de> Deserialize<'de>>() -> &'static [&'static str] {
        A::deserialize(AskNames).map_or_else(|Names(names)| names, |_| &[])
    }
}

impl fmt::Display for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join(", "))
    }
}

impl std::error::Error for Names {}

impl de::Error for Names {
    fn custom<T: fmt::Display>(_: T) -> Names {
        Names(&[])
    }
}

/// Reads nothing: answers an enum that is to be read with the names of its variants.
struct AskNames;

impl<'de> Deserializer<'de> for AskNames {
    type Error = Names;

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        names: &'static [&'static str],
        _: V,
    ) -> Result<V::Value, Names> {
        Err(Names(names))
    }

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Names> {
        Err(Names(&[]))
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map struct identifier ignored_any
    }
}

/// An action whose name was read, for its group to read.
struct Read<V> {
    name: String,
    content: V,
}

impl<'de, V: de::VariantAccess<'de>> EnumAccess<'de> for Read<V> {
    type Error = V::Error;
    type Variant = V;

    fn variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<(S::Value, V), V::Error> {
        Ok((seed.deserialize(self.name.into_deserializer())?, self.content))
    }
}

macro_rules! readers {
    ($($name:ident($group:ty),)*) => {
        /// The names of all actions, group by group.
        static NAMES: LazyLock<Vec<&'static str>> = LazyLock::new(|| [$(Names::of::<$group>(),)*].concat());

        /// Has the group of that name read the action; without one, gives the name back.
        fn read<'de, V: de::VariantAccess<'de>>(action: Read<V>) -> Result<Result<Action, V::Error>, String> {
            $(
                if Names::of::<$group>().contains(&action.name.as_str()) {
                    let read = <$group>::deserialize(EnumAccessDeserializer::new(action));
                    return Ok(read.map(Action::$name));
                }
            )*
            Err(action.name)
        }
    };
}

with_groups!(readers);

struct ActionVisitor;

impl<'de> Visitor<'de> for ActionVisitor {
    type Value = Action;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("enum Action")
    }

    fn visit_enum<A: EnumAccess<'de>>(self, access: A) -> Result<Action, A::Error> {
        let (name, content) = access.variant::<String>()?;
        match read(Read { name, content }) {
            Ok(outcome) => outcome,
            Err(name) => Err(A::Error::unknown_variant(&name, &NAMES)),
        }
    }
}

impl<'de> Deserialize<'de> for Action {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Action, D::Error> {
        deserializer.deserialize_enum("Action", &NAMES, ActionVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> String {
        serde_json::from_str::<Action>(text).unwrap_err().to_string()
    }

    #[test]
    fn every_group_is_read_as_it_was_written() {
        let texts = [
            r#"{"set_vf_count":{"pf":"0000:04:00.0","count":4}}"#,
            r#"{"set_vf_online":{"drive":"0000:04:00.0","vf":1,"online":true}}"#,
            r#"{"set_vf_online":{"drive":"0000:04:00.0","vf":1,"online":true,"with":{"queues":3,"interrupts":2}}}"#,
            r#"{"stop_guest":{"guest":"a"}}"#,
            r#"{"remove_partition":{"group":"penstock","cpus":"2-3"}}"#,
            r#"{"enable_unit":{"unit":"penstock.service","on":true}}"#,
            r#"{"remove_file":{"path":"/etc/penstock-test"}}"#,
        ];
        for text in texts {
            let action: Action = serde_json::from_str(text).unwrap();
            assert_eq!(serde_json::to_string(&action).unwrap(), text);
        }
    }

    #[test]
    fn no_two_groups_have_an_action_of_one_name() {
        let names: std::collections::BTreeSet<_> = NAMES.iter().collect();
        assert_eq!(names.len(), NAMES.len());
        assert!(NAMES.len() >= 40, "{NAMES:?}");
    }

    #[test]
    fn an_action_that_cannot_be_read_says_what_is_wrong_with_it() {
        let unknown = refused(r#"{"set_colour":{"pf":"0000:04:00.0"}}"#);
        assert!(
            unknown.contains("unknown variant `set_colour`, expected one of `leave_alone`, "),
            "{unknown}"
        );
        assert!(unknown.contains("`stop_guest`") && unknown.contains("`remove_file`"), "{unknown}");
        let short = refused(r#"{"set_vf_count":{"pf":"0000:04:00.0"}}"#);
        assert!(short.contains("missing field `count`"), "{short}");
        let wrong = refused(r#"{"set_vf_count":{"pf":"0000:04:00.0","count":"many"}}"#);
        assert!(wrong.contains("invalid type: string \"many\", expected u16"), "{wrong}");
    }
}
