import pytest

from graphmill.assets.building.labels import labelled, rounded


@pytest.mark.parametrize(
    ("name", "value", "label", "shown"),
    [
        ("num_nodes", 3000, "nodes", 3000),
        ("feature_bytes", 3 << 19, "feature (MiB)", 1.5),
        ("stored_bytes", 123_456_789_012, "stored (MiB)", 117737.6),
        ("row_bytes", 256, "row (B)", 256),
        ("read_bytes_by_tier", {"host": 1 << 20, "disk": 0}, "read by tier (MiB)", {"host": 1.0, "disk": 0.0}),
        ("build_seconds", 0.97123, "build (s)", 0.9712),
        ("test_accuracy", 0.9783333, "test accuracy (%)", 97.83),
        ("test_roc_auc", 0.912345, "test roc auc", 0.9123),
        ("touched_ratio", 0.70466, "touched ratio (%)", 70.47),
        ("hit_ratio_random_10_percent", 0.098928, "hit ratio random at 10 % (%)", 9.893),
        ("expected_hit_ratio_5_percent", 0.05, "expected hit ratio at 5 % (%)", 5.0),
        ("best_epoch", 3, "best epoch", 3),
        ("device_share", "300 of 3,000 rows", "device share", "300 of 3,000 rows"),
        ("class_names", ["a", "b"], "class names", ["a", "b"]),
        ("reused", True, "reused", True),
    ],
)
def test_a_number_has_its_unit_in_its_label(name, value, label, shown):
    assert labelled(name, value) == (label, shown)


def test_small_numbers_keep_what_counts_and_large_ones_one_digit():
    assert [rounded(number) for number in (0.000244140625, 0, 999.96, 12345.678)] == [0.0002441, 0, 1000.0, 12345.7]
