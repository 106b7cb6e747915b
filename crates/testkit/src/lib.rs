//! Fixtures, and the harness for namespace and board tests. Development only.
