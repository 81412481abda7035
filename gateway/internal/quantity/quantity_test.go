package quantity

import "testing"

func TestBytes(t *testing.T) {
	for s, want := range map[string]int64{
		"1": 1, "1000000": 1e6, "16Ki": 16 << 10, "512Mi": 512 << 20, "2Gi": 2 << 30, "1Ti": 1 << 40, "3k": 3e3, "500M": 500e6, "1G": 1e9, "2T": 2e12,
		"9223372036854775807": 1<<63 - 1, "8388607Ti": 8388607 << 40,
		"9223372036854775808": 0, "8388608Ti": 0, "9999999999Ti": 0,
		"": 0, "0": 0, "0Mi": 0, "Mi": 0, "-1Gi": 0, "+1Gi": 0, "1.5Gi": 0, "1 Gi": 0, "1_0": 0, "1gi": 0, "1GiB": 0, "0x10": 0, "1e3": 0, "lots": 0,
	} {
		if n, ok := Bytes(s); n != want || ok != (want > 0) {
			t.Errorf("Bytes(%q) = %d, %v; want %d", s, n, ok, want)
		}
	}
}

func TestMillis(t *testing.T) {
	for s, want := range map[string]int64{
		"2": 2000, "500m": 500, "1.5": 1500, "0.5": 500, "0.05": 50, "0.001": 1, "1.234": 1234, "1m": 1,
		"": 0, "0": 0, "0m": 0, "0.000": 0, "-1": 0, "+1": 0, "m": 0, ".5": 0, "1.": 0, "1.2345": 0, "1.+5": 0, "1.5m": 0, "1.5.5": 0, "NaN": 0, "Inf": 0, "1e3": 0, "2 ": 0,
		"9999999999": 0, "9999999999m": 0,
	} {
		if n, ok := Millis(s); n != want || ok != (want > 0) {
			t.Errorf("Millis(%q) = %d, %v; want %d", s, n, ok, want)
		}
	}
}
