//! What a runtime asks for in the environment (CNI specification, section "Parameters").

use std::path::PathBuf;

use penstock_model::{InterfaceName, Mac};

use crate::document::CniError;

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// Give a container an interface.
    Add,
    /// Take it back.
    Del,
    /// See whether it is as it was given.
    Check,
    /// Take back everything but what is named.
    Gc,
    /// Say whether something can be given.
    Status,
    /// Say which versions are understood.
    Version,
}

/// One call of the plugin, as the runtime's environment has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// What is to be done.
    pub verb: Verb,
    /// The container; empty where the verb is about none.
    pub container: String,
    /// The file of its namespace.
    pub netns: Option<PathBuf>,
    /// What the interface is called in there.
    pub interface: Option<InterfaceName>,
    /// The MAC address among `CNI_ARGS`.
    pub mac: Option<Mac>,
    /// Where other plugins are looked for.
    pub path: Vec<PathBuf>,
}

impl Call {
    /// Reads the environment, which `variable` looks into; one that is empty is not set.
    ///
    /// # Errors
    ///
    /// Where one is missing that the verb needs, or makes no sense.
    pub fn read(variable: impl Fn(&str) -> Option<String>) -> Result<Call, CniError> {
        let variable = |name: &str| variable(name).filter(|value| !value.is_empty());
        let wrong = |text: String| CniError::new(CniError::ENVIRONMENT, text);
        let verb = match variable("CNI_COMMAND").as_deref() {
            Some("ADD") => Verb::Add,
            Some("DEL") => Verb::Del,
            Some("CHECK") => Verb::Check,
            Some("GC") => Verb::Gc,
            Some("STATUS") => Verb::Status,
            Some("VERSION") => Verb::Version,
            Some(other) => {
                let hint = "it is ADD, DEL, CHECK, GC, STATUS or VERSION";
                return Err(wrong(format!("CNI_COMMAND is {other:?}")).hint(hint));
            }
            None => {
                return Err(wrong("CNI_COMMAND is not set".to_owned())
                    .hint("a container runtime sets it when it starts this plugin: see docs/cni.md"));
            }
        };
        let attaches = matches!(verb, Verb::Add | Verb::Del | Verb::Check);
        let needed = |name: &str, given: Option<String>, needed: bool| match given {
            None if needed => Err(wrong(format!("{name} is not set, and this verb needs it"))),
            given => Ok(given),
        };
        let container = needed("CNI_CONTAINERID", variable("CNI_CONTAINERID"), attaches)?.unwrap_or_default();
        let first = container.chars().next().is_none_or(|c| c.is_ascii_alphanumeric());
        if !first || !container.chars().all(|c| c.is_ascii_alphanumeric() || "_.-".contains(c)) {
            return Err(wrong(format!("CNI_CONTAINERID is {container:?}"))
                .hint("it begins with a letter or a digit; letters, digits, '_', '.' and '-' follow"));
        }
        // The configuration says whether ADD and CHECK need one.
        let netns = variable("CNI_NETNS");
        let interface = needed("CNI_IFNAME", variable("CNI_IFNAME"), attaches)?;
        let interface = interface
            .map(|name| name.parse::<InterfaceName>())
            .transpose()
            .map_err(|error| wrong(format!("CNI_IFNAME is wrong: {error}")))?;
        let path = variable("CNI_PATH").unwrap_or_default();
        Ok(Call {
            verb,
            container,
            netns: netns.map(PathBuf::from),
            interface,
            mac: variable("CNI_ARGS").map_or(Ok(None), |arguments| mac_of(&arguments))?,
            path: std::env::split_paths(&path).filter(|path| path.is_absolute()).collect(),
        })
    }

    /// The interface's name, which [`Call::read`] has seen to for the verbs that need one.
    ///
    /// # Errors
    ///
    /// When the call has none.
    pub fn interface(&self) -> Result<&InterfaceName, CniError> {
        self.interface.as_ref().ok_or_else(|| CniError::new(CniError::ENVIRONMENT, "CNI_IFNAME is not set"))
    }
}

/// The MAC address in `CNI_ARGS`: `KEY=VALUE` with semicolons. Other keys are an error unless `IgnoreUnknown` is true, as runtimes
/// that add their own say.
fn mac_of(arguments: &str) -> Result<Option<Mac>, CniError> {
    let wrong = |text: String| CniError::new(CniError::ENVIRONMENT, text);
    let mut pairs = Vec::new();
    for pair in arguments.split(';').filter(|pair| !pair.is_empty()) {
        pairs.push(
            pair.split_once('=').ok_or_else(|| wrong(format!("CNI_ARGS has {pair:?}, not KEY=VALUE")))?,
        );
    }
    let truth = |value: &str| matches!(value, "1" | "t" | "T" | "true" | "TRUE" | "True");
    let lenient = pairs.iter().any(|(key, value)| *key == "IgnoreUnknown" && truth(value));
    let mut mac = None;
    for (key, value) in pairs {
        match key {
            "IgnoreUnknown" => {}
            "MAC" => {
                mac =
                    Some(value.parse().map_err(|error| wrong(format!("MAC of CNI_ARGS is wrong: {error}")))?)
            }
            _ if lenient => {}
            _ => {
                return Err(
                    wrong(format!("CNI_ARGS has the unknown key {key:?}")).hint("or set IgnoreUnknown=1")
                );
            }
        }
    }
    Ok(mac)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> Result<Call, CniError> {
        let value =
            |name: &str| variables.iter().find(|(of, _)| *of == name).map(|(_, value)| (*value).to_owned());
        Call::read(value)
    }

    #[test]
    fn an_add_is_read_whole() {
        let call = read(&[
            ("CNI_COMMAND", "ADD"),
            ("CNI_CONTAINERID", "a-1"),
            ("CNI_NETNS", "/run/netns/a"),
            ("CNI_IFNAME", "net1"),
            ("CNI_ARGS", "IgnoreUnknown=1;K8S_POD_NAME=x;MAC=02:00:00:00:00:07"),
            ("CNI_PATH", "/opt/cni/bin:relative:/usr/lib/cni"),
        ])
        .unwrap();
        assert_eq!(call.verb, Verb::Add);
        assert_eq!(call.mac, Some("02:00:00:00:00:07".parse().unwrap()));
        assert_eq!(call.path, [PathBuf::from("/opt/cni/bin"), PathBuf::from("/usr/lib/cni")]);
        assert_eq!(call.netns, Some(PathBuf::from("/run/netns/a")));
    }

    #[test]
    fn what_is_missing_or_wrong_is_named() {
        let add =
            [("CNI_COMMAND", "ADD"), ("CNI_CONTAINERID", "a"), ("CNI_NETNS", "/n"), ("CNI_IFNAME", "net1")];
        assert!(read(&add).is_ok());
        for (name, value, words) in [
            ("CNI_COMMAND", "", "CNI_COMMAND is not set"),
            ("CNI_COMMAND", "SHOW", "\"SHOW\""),
            ("CNI_CONTAINERID", "", "CNI_CONTAINERID is not set"),
            ("CNI_CONTAINERID", "../a", "\"../a\""),
            ("CNI_IFNAME", "", "CNI_IFNAME is not set"),
            ("CNI_IFNAME", "a/b", "CNI_IFNAME is wrong"),
            ("CNI_ARGS", "x", "KEY=VALUE"),
            ("CNI_ARGS", "X=1", "unknown key"),
            ("CNI_ARGS", "MAC=1", "is not a MAC address"),
        ] {
            let mut variables = vec![(name, value)];
            variables.extend(add.iter().filter(|(other, _)| *other != name));
            let error = read(&variables).unwrap_err();
            assert_eq!(error.code, CniError::ENVIRONMENT, "{name}={value}");
            assert!(error.text.contains(words), "{name}={value}: {error}");
        }
    }

    #[test]
    fn a_del_needs_no_namespace_and_gc_nothing() {
        assert!(read(&[("CNI_COMMAND", "DEL"), ("CNI_CONTAINERID", "a"), ("CNI_IFNAME", "net1")]).is_ok());
        for verb in ["GC", "STATUS", "VERSION"] {
            assert!(read(&[("CNI_COMMAND", verb)]).is_ok(), "{verb}");
        }
    }
}
