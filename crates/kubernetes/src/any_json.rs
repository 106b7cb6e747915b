//! Any JSON, for property tests.

use proptest::prelude::*;
use serde_json::Value;

/// A value of any kind, nested up to three deep, with these numbers, texts and keys.
pub fn any_json(
    numbers: impl Strategy<Value = i64> + 'static,
    texts: impl Strategy<Value = String> + 'static,
    keys: impl Strategy<Value = String> + Clone + 'static,
) -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        1 => Just(Value::Null),
        1 => any::<bool>().prop_map(Value::from),
        1 => numbers.prop_map(Value::from),
        1 => any::<f64>().prop_map(Value::from),
        2 => texts.prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 16, 4, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(keys.clone(), inner, 0..4)
                .prop_map(|all| Value::Object(all.into_iter().collect())),
        ]
    })
}
