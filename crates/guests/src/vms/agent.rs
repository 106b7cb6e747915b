//! The QEMU guest agent's words: what it is asked, and what its answers mean. Pure.
//!
//! The agent runs inside the guest, so every answer may be hostile: nothing here panics, and what an answer costs is
//! bounded by its length, which [`MOST`] bounds.
//!
//! Protocol: QEMU `qga/qapi-schema.json`.

use std::net::IpAddr;

use penstock_model::{InterfaceAddress, InterfaceName, Mac};
use serde::Deserialize;
use serde_json::{Value, json};
use thiserror::Error;

use super::base64;

/// A longer answer is not looked at. libvirt itself stops at 10 MiB (`src/qemu/qemu_agent.c`).
pub const MOST: usize = 16 << 20;

/// More interfaces, and more addresses of one, are not looked at.
const MOST_INTERFACES: usize = 1024;

/// Why an answer means nothing.
#[derive(Debug, Error)]
pub enum AnswerError {
    /// It is longer than [`MOST`].
    #[error("the agent's answer is longer than {} MiB", MOST >> 20)]
    TooLong,
    /// It is not what the protocol has there.
    #[error("the agent's answer cannot be parsed")]
    Garbled(#[from] serde_json::Error),
    /// A text in it is not base64.
    #[error("the agent's answer has bytes that are not in base64")]
    NotBase64,
}

#[derive(Deserialize)]
struct Returned<T> {
    r#return: T,
}

fn returned<T: serde::de::DeserializeOwned>(answer: &[u8]) -> Result<T, AnswerError> {
    if answer.len() > MOST {
        return Err(AnswerError::TooLong);
    }
    Ok(serde_json::from_slice::<Returned<T>>(answer)?.r#return)
}

/// Asks whether it is there.
pub fn ping() -> Value {
    json!({"execute": "guest-ping"})
}

/// Asks for the network interfaces.
pub fn get_interfaces() -> Value {
    json!({"execute": "guest-network-get-interfaces"})
}

/// A program to be run inside.
#[derive(Clone, Debug, Default)]
pub struct Program {
    /// Its path or name.
    pub path: String,
    /// Its arguments in order, without the program.
    pub arguments: Vec<String>,
    /// Its environment, `NAME=VALUE`; empty: the agent's own.
    pub environment: Vec<String>,
    /// What it reads on standard input.
    pub input: Vec<u8>,
}

/// Has it run a program and keep what that prints.
pub fn exec(program: &Program) -> Value {
    let mut arguments = json!({"path": program.path, "arg": program.arguments, "capture-output": true});
    if !program.environment.is_empty() {
        arguments["env"] = json!(program.environment);
    }
    if !program.input.is_empty() {
        arguments["input-data"] = json!(base64::encode(&program.input));
    }
    json!({"execute": "guest-exec", "arguments": arguments})
}

/// Asks how a program is.
pub fn exec_status(pid: i64) -> Value {
    json!({"execute": "guest-exec-status", "arguments": {"pid": pid}})
}

/// Opens a file for reading.
pub fn open(path: &str) -> Value {
    json!({"execute": "guest-file-open", "arguments": {"path": path, "mode": "r"}})
}

/// Reads on in an open file.
pub fn read(handle: i64, count: usize) -> Value {
    json!({"execute": "guest-file-read", "arguments": {"handle": handle, "count": count}})
}

/// Closes a file.
pub fn close(handle: i64) -> Value {
    json!({"execute": "guest-file-close", "arguments": {"handle": handle}})
}

/// The answer to [`ping`] and [`close`]: nothing.
///
/// # Errors
///
/// [`AnswerError::TooLong`], or [`AnswerError::Garbled`] for what is no such answer, which the agent's own errors are too.
pub fn nothing(answer: &[u8]) -> Result<(), AnswerError> {
    returned::<Value>(answer).map(drop)
}

/// The answer to [`open`]: the file's handle.
///
/// # Errors
///
/// [`AnswerError::TooLong`], or [`AnswerError::Garbled`] for what is no such answer, which the agent's own errors are too.
pub fn handle(answer: &[u8]) -> Result<i64, AnswerError> {
    returned(answer)
}

/// The answer to [`read`]: bytes, and whether they are the last.
///
/// # Errors
///
/// [`AnswerError::TooLong`], or [`AnswerError::Garbled`] for what is no such answer, which the agent's own errors are too;
/// [`AnswerError::NotBase64`] when the bytes are not encoded so.
pub fn chunk(answer: &[u8]) -> Result<(Vec<u8>, bool), AnswerError> {
    #[derive(Deserialize)]
    struct Chunk {
        #[serde(rename = "buf-b64")]
        bytes: String,
        eof: bool,
    }
    let chunk: Chunk = returned(answer)?;
    Ok((base64::decode(&chunk.bytes).ok_or(AnswerError::NotBase64)?, chunk.eof))
}

/// The answer to [`exec`]: the process's number inside.
///
/// # Errors
///
/// [`AnswerError::TooLong`], or [`AnswerError::Garbled`] for what is no such answer, which the agent's own errors are too.
pub fn pid(answer: &[u8]) -> Result<i64, AnswerError> {
    #[derive(Deserialize)]
    struct Pid {
        pid: i64,
    }
    Ok(returned::<Pid>(answer)?.pid)
}

/// How a program that was run inside ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ended {
    /// Its exit status; 0 when it died of a signal.
    pub code: i32,
    /// The signal that it died of.
    pub signal: Option<i32>,
    /// What it wrote to standard output.
    pub stdout: Vec<u8>,
    /// What it wrote to standard error.
    pub stderr: Vec<u8>,
    /// Whether more was written than the agent kept.
    pub truncated: bool,
}

/// The answer to [`exec_status`]; `None` while the program runs.
///
/// # Errors
///
/// [`AnswerError::TooLong`], or [`AnswerError::Garbled`] for what is no such answer, which the agent's own errors are too;
/// [`AnswerError::NotBase64`] when its output is not encoded so.
pub fn ended(answer: &[u8]) -> Result<Option<Ended>, AnswerError> {
    #[derive(Deserialize)]
    #[serde(rename_all = "kebab-case")]
    struct Status {
        exited: bool,
        #[serde(rename = "exitcode")]
        code: Option<i32>,
        signal: Option<i32>,
        out_data: Option<String>,
        err_data: Option<String>,
        out_truncated: Option<bool>,
        err_truncated: Option<bool>,
    }
    let status: Status = returned(answer)?;
    if !status.exited {
        return Ok(None);
    }
    let bytes = |text: Option<String>| {
        base64::decode(text.as_deref().unwrap_or_default()).ok_or(AnswerError::NotBase64)
    };
    Ok(Some(Ended {
        // Of these the exit status and the signal are eight and seven bits wide (wait(2)).
        code: status.code.unwrap_or(0) & 0xff,
        signal: status.signal.map(|signal| signal & 0x7f),
        stdout: bytes(status.out_data)?,
        stderr: bytes(status.err_data)?,
        truncated: status.out_truncated.unwrap_or(false) || status.err_truncated.unwrap_or(false),
    }))
}

/// A network interface as the agent tells of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentInterface {
    /// Its name inside the guest.
    pub name: InterfaceName,
    /// Its MAC address.
    pub mac: Mac,
    /// Its IP addresses.
    pub addresses: Vec<InterfaceAddress>,
}

/// The answer to [`get_interfaces`]. Interfaces without a MAC address, the loopback interface, and what makes no sense
/// are left out.
///
/// # Errors
///
/// [`AnswerError::TooLong`], or [`AnswerError::Garbled`] for what is no such answer, which the agent's own errors are too.
pub fn interfaces(answer: &[u8]) -> Result<Vec<AgentInterface>, AnswerError> {
    #[derive(Deserialize)]
    #[serde(rename_all = "kebab-case")]
    struct Found {
        name: String,
        hardware_address: Option<String>,
        #[serde(default)]
        ip_addresses: Vec<Address>,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "kebab-case")]
    struct Address {
        ip_address: String,
        prefix: i64,
    }
    let address = |found: &Address| {
        // A link-local address may come with its zone: fe80::1%eth0.
        let ip: IpAddr = found.ip_address.split('%').next()?.parse().ok()?;
        InterfaceAddress::new(ip, u8::try_from(found.prefix).ok()?)
    };
    let found: Vec<Found> = returned(answer)?;
    let interface = |found: &Found| {
        Some(AgentInterface {
            name: found.name.parse().ok()?,
            mac: found.hardware_address.as_ref()?.parse().ok().filter(|mac: &Mac| !mac.is_zero())?,
            addresses: found.ip_addresses.iter().take(MOST_INTERFACES).filter_map(address).collect(),
        })
    };
    Ok(found.iter().take(MOST_INTERFACES).filter_map(interface).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interfaces_of_a_real_agent() {
        let answer = br#"{"return":[
            {"name":"lo","ip-addresses":[{"ip-address-type":"ipv4","ip-address":"127.0.0.1","prefix":8}],
             "statistics":{"tx-packets":0},"hardware-address":"00:00:00:00:00:00"},
            {"name":"eth0","ip-addresses":[{"ip-address-type":"ipv4","ip-address":"192.0.2.7","prefix":24},
             {"ip-address-type":"ipv6","ip-address":"fe80::1%eth0","prefix":64},
             {"ip-address-type":"ipv4","ip-address":"192.0.2.8","prefix":-3},
             {"ip-address-type":"ipv4","ip-address":"nonsense","prefix":3}],
             "hardware-address":"02:00:00:00:01:04"},
            {"name":"tun/0","hardware-address":"02:00:00:00:01:05"},{"name":"sit0"}]}"#;
        let found = interfaces(answer).unwrap();
        let texts: Vec<String> = found[0].addresses.iter().map(ToString::to_string).collect();
        assert_eq!((found.len(), found[0].name.as_str()), (1, "eth0"));
        assert_eq!(found[0].mac.to_string(), "02:00:00:00:01:04");
        assert_eq!(texts, ["192.0.2.7/24", "fe80::1/64"]);
    }

    #[test]
    fn programs_run_and_end() {
        assert_eq!(pid(br#"{"return":{"pid":342}}"#).unwrap(), 342);
        assert_eq!(ended(br#"{"return":{"exited":false}}"#).unwrap(), None);
        let answer =
            br#"{"return":{"exitcode":3,"out-data":"aGVsbG8K","out-truncated":true,"exited":true,"err-data":""}}"#;
        let wanted = Ended { code: 3, stdout: b"hello\n".to_vec(), truncated: true, ..Ended::default() };
        assert_eq!(ended(answer).unwrap(), Some(wanted));
        let killed = ended(br#"{"return":{"signal":9,"exited":true}}"#).unwrap().unwrap();
        assert_eq!(killed.signal, Some(9));
    }

    #[test]
    fn files_are_read_in_chunks() {
        assert_eq!(handle(br#"{"return":1000}"#).unwrap(), 1000);
        assert_eq!(
            chunk(br#"{"return":{"count":3,"buf-b64":"Zm9v","eof":true}}"#).unwrap(),
            (b"foo".to_vec(), true)
        );
    }

    #[test]
    fn a_hostile_answer_is_an_error() {
        let deep = format!(r#"{{"return":{}"#, "[".repeat(100_000));
        for answer in ["", "{}", "[]", r#"{"return":7}"#, r#"{"return":{"pid":"x"}}"#, deep.as_str()] {
            assert!(interfaces(answer.as_bytes()).is_err());
            assert!(ended(answer.as_bytes()).is_err());
            assert!(pid(answer.as_bytes()).is_err());
            assert!(chunk(answer.as_bytes()).is_err());
        }
        assert!(matches!(nothing(&vec![b' '; MOST + 1]), Err(AnswerError::TooLong)));
        assert!(matches!(
            ended(br#"{"return":{"exited":true,"out-data":"?"}}"#),
            Err(AnswerError::NotBase64)
        ));
        // Of another width than the protocol's.
        assert!(ended(br#"{"return":{"exited":true,"exitcode":99999999999}}"#).is_err());
    }

    #[test]
    fn what_is_asked() {
        let program = Program {
            path: "/bin/sh".into(),
            arguments: vec!["-c".into(), "cat".into()],
            environment: vec![],
            input: b"foo".to_vec(),
        };
        let wanted = r#"{"arguments":{"arg":["-c","cat"],"capture-output":true,"input-data":"Zm9v","path":"/bin/sh"},"execute":"guest-exec"}"#;
        assert_eq!(exec(&program).to_string(), wanted);
    }
}
