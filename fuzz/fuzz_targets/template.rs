//! Any text as a user's template.
#![no_main]

use libfuzzer_sys::fuzz_target;
use penstock_model::{Model, Source, guest::Template};
use penstock_render::render;

const MODEL: &str = "nics: {NET0: {match: {mac: 02:00:00:00:00:01}, vfs: 2}}\n\
    guests: {rt: {kind: vm, functions: ['NET0#1'], generate: [{template: json, to: out}]}}\n";

fn model() -> Model {
    penstock_model::parse(&Source::new("m.yaml", MODEL)).unwrap_or_else(|error| panic!("{error:?}")).model
}

fuzz_target!(|bytes: &[u8]| {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let mut model = model();
    let generate = &mut model.guests.values_mut().next().expect("the model has a guest").generate;
    generate[0].template = Template::File { path: "a.j2".into(), text: text.to_owned() };
    match render(&model, None) {
        Ok(files) => assert_eq!(files.len(), 1),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
});
