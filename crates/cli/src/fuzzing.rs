//! What the fuzz targets reach of this crate. See fuzz/README.md.

use std::{path::PathBuf, sync::mpsc::channel};

use penstock_model::text::Styled;

use crate::{
    model_file,
    remote::{
        fleet::{self, Order},
        protocol::{Reply, Request, Requests, encode},
        reply_sender::ReplySender,
        session::{self, Event},
    },
    settings::{Settings, Widths},
    status::Status,
    ui::printer::Printer,
};

/// What stands for the token of the bootstrap script, which the machine knows once it runs the script.
pub const TOKEN: &str = "T";

/// The bytes come to an agent on standard input, in pieces of `piece` bytes.
pub fn requests(bytes: &[u8], piece: usize) {
    let mut requests = Requests::default();
    for piece in bytes.chunks(piece.max(1)) {
        let read = requests.push(piece, &mut |request| {
            let again: Request = serde_json::from_slice(&encode(&request)).expect("what was sent is read");
            assert_eq!(again, request);
            if let Request::Begin { payload: Some(payload), .. } = request {
                drop(model_file::unpack(&payload));
            }
        });
        if read.is_err() {
            return;
        }
    }
}

/// The bytes come from a remote machine on its standard output. `json`: JSON was asked for; `several`: it is one of two; `sudo`: with
/// `--sudo`.
pub fn replies(bytes: &[u8], json: bool, several: bool, sudo: bool) {
    let mut events = Vec::new();
    let end = session::take_output(TOKEN, bytes, sudo, &mut |event| events.push(event));
    let ready = format!("penstock-{TOKEN} ready");
    let ran = bytes.split(|byte| *byte == b'\n').any(|line| line.starts_with(ready.as_bytes()));
    assert!(ran || !events.iter().any(|event| matches!(event, Event::Reply(_))), "a reply before it ran");
    let (sender, shown) = channel();
    let mut printer = Printer::over(ReplySender::through(sender), &settings(json));
    let order = Order { at_most: 1, stop_on_failure: false, json, watches: false };
    let outcomes = fleet::show(events, end.clone(), several, order, &mut printer);
    printer.finish(Status::Holds);
    drop(printer);
    for reply in shown {
        let text: Styled = match reply {
            Reply::Doing(text) | Reply::Say(text) | Reply::Warn(text) => text.into(),
            Reply::Failure { causes, hints } => [causes, hints].concat().join("\n").into(),
            Reply::Data(text) | Reply::Explained(text) => text,
            Reply::Waits(_) | Reply::Alive | Reply::Ended(_) => continue,
        };
        let text = text.shown(false);
        assert!(
            !text.contains(|c: char| c.is_control() && !"\n\t".contains(c)),
            "{text:?} steers a terminal"
        );
    }
    if end.is_some_and(|end| end.trouble.is_some()) {
        assert!(outcomes.iter().any(|outcome| !outcome.error.is_empty()), "trouble that nobody is told");
    }
}

fn settings(json: bool) -> Settings {
    Settings {
        json,
        quiet: false,
        warned: false,
        color_data: false,
        color: false,
        widths: Widths { data: Some(80), conversation: Some(80) },
        interactive: false,
        redraws: false,
        cache: PathBuf::new(),
        state: PathBuf::new(),
        journal: PathBuf::new(),
    }
}
