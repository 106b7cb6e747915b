//! Templates that try to take all memory, or all time. In a program of its own: the memory of the process is measured.
#![allow(clippy::disallowed_methods)]

use std::{
    fs,
    path::Path,
    time::{Duration, Instant},
};

use penstock_model::{Model, Source, Template};
use penstock_render::{GenerateError, render};
use penstock_testkit::memory::peak;

fn model(text: &str) -> Model {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/generate/model.yaml");
    let published = fs::read_to_string(path).unwrap();
    let mut model = penstock_model::parse(&Source::new("model.yaml", &published)).unwrap().model;
    model.guests["pf0"].generate.clear();
    model.guests["rt-2"].generate.truncate(1);
    model.guests["rt-2"].generate[0].template =
        Template::File { path: "own.j2".to_owned(), text: text.to_owned() };
    model
}

const MOST: u64 = 256 << 20;

#[test]
fn no_template_takes_all_memory() {
    let double = |by: &str| {
        format!(
            "{{% set ns = namespace(x='0123456789abcdef') %}}{{% for i in range(40) %}}{{% set ns.x = {by} %}}{{% endfor %}}"
        )
    };
    let steps = "{% set a0 = 'x' * 100 %}".to_owned()
        + &(0..40).map(|n| format!("{{% set a{} = a{n} ~ a{n} %}}", n + 1)).collect::<String>();
    let capture = "{% set a0 = 'x' * 100 %}".to_owned()
        + &(0..40)
            .map(|n| format!("{{% set a{} %}}{{{{ a{n} }}}}{{{{ a{n} }}}}{{% endset %}}", n + 1))
            .collect::<String>();
    let macros = "{% macro m0() %}0123456789{% endmacro %}".to_owned()
        + &(0..20)
            .map(|n| {
                format!("{{% macro m{}() %}}{}{{% endmacro %}}", n + 1, format!("{{{{ m{n}() }}}}").repeat(4))
            })
            .collect::<String>()
        + "{% set all = m20() %}";
    let each = |step: &str| {
        format!(
            "{{% set ns = namespace(x=[]) %}}{{% for i in range(3000) %}}{{% for j in range(3000) %}}{{% set ns.x = {step} %}}{{% endfor %}}{{% endfor %}}"
        )
    };
    // As deep as fits, so that what goes through it does it by recursion.
    let deep = |step: &str| {
        format!(
            "{{% set ns = namespace(x=[]) %}}{{% for i in range(1000) %}}{{% for j in range(140) %}}{{% set ns.x = {step} %}}{{% endfor %}}{{% endfor %}}"
        )
    };
    let cases: Vec<(&str, String)> = vec![
        ("~", double("ns.x ~ ns.x")),
        ("+", double("ns.x + ns.x")),
        ("*", "{{ ('x' * 1000000 * 1000000) | length }}".to_owned()),
        (
            "* of lists",
            "{% for x in [1] * 1000000000000 %}{{ x }}{% if loop.last %}{% endif %}{% endfor %}".to_owned(),
        ),
        ("list of *", "{% set x = ([1] * 1000000000) | list %}".to_owned()),
        ("steps of ~", steps),
        ("captured", capture),
        ("macros", macros),
        ("replace", double("ns.x | replace('0', ns.x)")),
        ("replace of nothing", double("ns.x | replace('', ns.x)")),
        ("join", double("[ns.x, ns.x, ns.x] | join(ns.x)")),
        ("format", "{{ '%999999999999d' | format(1) | length }}".to_owned()),
        ("format of many", double("'%s%s' | format(ns.x, ns.x)")),
        ("indent", double("(ns.x ~ '\\n' ~ ns.x) | indent(1000)")),
        ("indent at once", "{{ ('\\n' * 1000 ~ 'x') | indent(1000000000) | length }}".to_owned()),
        ("tojson", double("ns.x | tojson | tojson")),
        ("escape", double("('<' ~ ns.x ~ '<') | replace('<', ns.x) | escape")),
        ("upper", double("(ns.x ~ ns.x) | upper | title")),
        (
            "range",
            "{% set x = range(100000) | list %}{% set y = ([x] * 100000) | list %}{{ (y | tojson) | length }}"
                .to_owned(),
        ),
        ("lists in lists", each("[ns.x]")),
        ("lists in lists twice", each("[ns.x, ns.x]")),
        ("lists shown", double("[ns.x, ns.x] | string")),
        ("deep lists shown", deep("[ns.x]") + "{{ ns.x }}"),
        ("deep lists told", deep("[ns.x]") + "{{ ns.x | tojson }}"),
        ("deep lists compared", deep("[ns.x]") + "{% set a = ns.x %}{% set ns.x = [] %}" + &deep("[ns.x]")[30..] + "{{ a == ns.x }}"),
        ("deep lists as keys", deep("[ns.x]") + "{% set d = {ns.x: 1} %}"),
        ("deep namespaces", each("namespace(x=ns.x)")),
        ("dicts in dicts", each("{'a': ns.x}")),
        ("longer lists", each("ns.x + [1]")),
        ("tuples", each("(ns.x,)")),
        ("chain", double("(ns.x, ns.x) | list | tojson")),
        ("batch", "{{ range(10) | batch(1000000000000, 'x') | list | length }}".to_owned()),
        ("slice", "{{ range(10) | slice(1000000000000, 'x') | list | length }}".to_owned()),
        ("split", double("(ns.x ~ ns.x) | split('') | join")),
        ("filter block", double("ns.x ~ ns.x") + "{% filter upper %}{{ ns.x }}{% endfilter %}"),
    ];
    for (name, text) in cases {
        let model = model(&text);
        let began = Instant::now();
        let (outcome, took) = peak(|| render(&model, None));
        let took_long = began.elapsed();
        let said = match &outcome {
            Ok(files) => format!("{} bytes", files[0].text.len()),
            Err(error @ GenerateError::Template(_)) => {
                error.styled(&Source::new("model.yaml", "")).to_string().lines().next().unwrap().to_owned()
            }
            Err(other) => panic!("{name}: {other:?}"),
        };
        println!("{name:20} {:4} MiB {:6.2} s: {said}", took >> 20, took_long.as_secs_f64());
        assert!(took < MOST, "{name}: {} MiB", took >> 20);
        assert!(took_long < Duration::from_secs(60), "{name}: {took_long:?}");
    }
    // And one that does no harm is rendered afterwards, as before.
    assert_eq!(render(&model("{{ guest.name }}"), None).unwrap()[0].text, "rt-2");
    let error = render(&model(&double("ns.x ~ ns.x")), None).unwrap_err();
    let said = error.styled(&Source::new("model.yaml", "")).to_string();
    assert!(said.contains("own.j2") && said.contains("takes more than 16 MiB of memory"), "{said}");
}
