//! The plugin that gives addresses: each verb is handed on to it, with the same environment and configuration.

use std::time::Duration;

use penstock_host::{Command, files};
use serde_json::Value;

use crate::{
    call::Call,
    config::Configuration,
    document::{Attached, CniError},
};

/// How long it may take. A DHCP lease takes seconds; runtimes give up after minutes.
const TIMEOUT: Duration = Duration::from_secs(100);

/// Hands the verb `verb` on; what it answered.
///
/// # Errors
///
/// When the plugin is not there, or fails: with its own number and words.
pub fn delegate(call: &Call, configuration: &Configuration, verb: &str) -> Result<Option<Value>, CniError> {
    let Some(plugin) = &configuration.ipam else { return Ok(None) };
    let program =
        call.path.iter().map(|directory| directory.join(plugin)).find(|program| files::exists(program));
    let Some(program) = program else {
        let directories: Vec<String> = call.path.iter().map(|path| path.display().to_string()).collect();
        return Err(CniError::new(CniError::IPAM, format!("there is no IPAM plugin {plugin:?} in CNI_PATH"))
            .hint(format!("CNI_PATH is {:?}", directories.join(":"))));
    };
    let mut command = Command::new(&program)
        .env("CNI_COMMAND", verb)
        .env("CNI_CONTAINERID", &call.container)
        .input(configuration.whole.to_string())
        .deadline(TIMEOUT);
    if let Some(netns) = &call.netns {
        command = command.env("CNI_NETNS", netns);
    }
    if let Some(interface) = &call.interface {
        command = command.env("CNI_IFNAME", interface.as_str());
    }
    let output = command.run()?;
    let answer = serde_json::from_slice::<Value>(&output.stdout).ok();
    if output.status.success() {
        return Ok(answer);
    }
    let said = answer.as_ref();
    let code = said.and_then(|said| said["code"].as_u64()).and_then(|code| u32::try_from(code).ok());
    let words = said.and_then(|said| said["msg"].as_str()).map(str::to_owned);
    let words = words.unwrap_or_else(|| output.errors().trim().to_owned());
    let error =
        CniError::new(code.unwrap_or(CniError::IPAM), format!("IPAM plugin {plugin}: {verb}: {words}"));
    let details = said.and_then(|said| said["details"].as_str()).filter(|details| !details.is_empty());
    Err(CniError { details: details.map(str::to_owned), ..error })
}

/// The addresses that it gives.
///
/// # Errors
///
/// As of [`delegate`], when its answer is none, and when it has no address.
pub fn add(call: &Call, configuration: &Configuration) -> Result<Attached, CniError> {
    if configuration.ipam.is_none() {
        return Ok(Attached::default());
    }
    let answer = delegate(call, configuration, "ADD")?.unwrap_or_default();
    let unread =
        |error| CniError::new(CniError::IPAM, format!("the answer of the IPAM plugin is none: {error}"));
    let attached: Attached = serde_json::from_value(answer).map_err(unread)?;
    if attached.ips.is_empty() {
        let plugin = configuration.ipam.as_deref().unwrap_or_default();
        return Err(CniError::new(CniError::IPAM, format!("the IPAM plugin {plugin} gave no address")));
    }
    Ok(attached)
}
