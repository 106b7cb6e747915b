//! What the agent publishes while somebody's run on its machine is under way or not decided.

use super::*;

/// A run of somebody's, as `undo --list` has it.
fn run(number: u64, more: Value) -> Value {
    let mut run = json!({
        "run": number, "purpose": "apply", "user": "root", "command": ["penstock", "apply", "m.yaml"], "since": 0,
        "running": false, "phase": "applied", "standing": 3, "waits_for_confirmation": false, "is_to_go": false,
    });
    run.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    run
}

fn until_log(node: &Node<'_>, words: &str) {
    let deadline = Instant::now() + PATIENT;
    while !node.log().contains(words) {
        assert!(Instant::now() < deadline, "{words}:\n{}", node.log());
        thread::sleep(PAUSE);
    }
}

/// What is told to scrapers is gathered every few seconds.
fn until_current(node: &Node<'_>, wanted: u8) {
    let deadline = Instant::now() + PATIENT;
    let wanted = format!("penstock_published_current {wanted}");
    loop {
        let text = node.scrape().unwrap_or_default();
        if text.lines().any(|line| line == wanted) {
            return;
        }
        assert!(Instant::now() < deadline, "{wanted}: {text}");
        thread::sleep(PAUSE);
    }
}

pub fn held_back() {
    let whole = igb();
    let mut node = Node::new("held", &whole);
    node.metrics = true;
    fs::write(node.path("metrics"), "# EOF\n").unwrap();
    node.runs(&[run(3, json!({"waits_for_confirmation": true}))]);
    node.start();
    until_log(&node, "run 3 waits to be confirmed");
    assert_eq!(node.slices(), Vec::<Value>::new());
    until_current(&node, 0);
    node.runs(&[run(3, json!({}))]);
    node.until("it was confirmed", |devices| devices.len() == 7);
    until_current(&node, 1);

    // An `apply` by hand takes a VF away and makes it anew. Nobody confirms it, and its guard is at work for a while.
    let mut fewer = whole.clone();
    fewer.pfs[0].sriov.as_mut().unwrap().vfs.remove(0);
    let before = node.essence();
    let run_in = |state: Value| node.runs(&[run(3, json!({})), run(4, state)]);
    run_in(json!({"running": true}));
    node.scanned(&fewer);
    node.until("what is gone is withdrawn at once", |devices| devices.len() == 6);
    until_current(&node, 0);
    node.scanned(&whole);
    let states = [
        (json!({"running": true}), "run 4 goes on"),
        (json!({"waits_for_confirmation": true}), "run 4 waits to be confirmed"),
        (json!({"phase": "partly_taken_back", "is_to_go": true}), "run 4 is not all taken back"),
    ];
    for (state, words) in states {
        run_in(state);
        until_log(&node, &format!("is not published: {words}"));
        assert_eq!(node.devices().map(|devices| devices.len()), Some(6), "{words}");
        until_current(&node, 0);
    }
    run_in(json!({"phase": "nothing"}));
    node.until("it is decided", |devices| devices.len() == 7);
    assert_eq!(node.essence(), before);
    until_current(&node, 1);

    // One that came to its end while the machine was scanned.
    let at = node.directory.path().display().to_string();
    node.scanned(&fewer);
    fs::write(
        node.path("meanwhile"),
        format!("sed -i 's/\"run\":4/\"run\":5/' {at}/runs.json; rm {at}/meanwhile"),
    )
    .unwrap();
    until_log(&node, "the machine was being changed meanwhile");
    node.until("the next look sees it", |devices| devices.len() == 6);
}
