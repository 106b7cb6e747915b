//! Some steps of a small plan meet some faults on a board: the short form of `make campaign`, which has all of them.

use std::process::ExitCode;

use penstock_testkit::{
    campaign::{Campaign, Choice, Fault, Over, Record, Steps},
    trials::{Outcome, on_boards},
};

fn main() -> ExitCode {
    on_boards(&[("a_run_that_meets_a_fault_leads_back_or_on_in_board", some)])
}

fn some() -> Outcome {
    let text = "nics: {NET0: {vfs: 2}}\nguests: {a: {functions: [NET0#0]}}\n";
    // The VFs; the way back; the guard on its own.
    let chosen = |over, step, faults: &[Fault]| Choice {
        steps: Steps::Numbers(vec![step]),
        faults: faults.to_vec(),
        runs: vec![over],
    };
    let choices = [
        chosen(Over::Apply, 2, &[Fault::Fail, Fault::Full]),
        chosen(Over::Undo, 5, &[Fault::Middle]),
        chosen(Over::Guard, 3, &[Fault::Fail]),
    ];
    let mut record = Record::in_memory();
    Campaign { model: "small", text, choices: &choices }.run(&mut record, &mut |ended| {
        println!("{:?}: {} s, wrong: {:#?}", ended.trial, ended.seconds, ended.wrong);
    })?;
    for ended in record.ended() {
        assert!(ended.wrong.is_empty() && ended.not_tried.is_none(), "{ended:#?}");
    }
    assert_eq!(record.ended().len(), 4);
    Ok(())
}
