package symmetric

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
)

// stored reads a file of bench/results.
func stored(t *testing.T, name string, to any) {
	t.Helper()
	raw, err := os.ReadFile("../../../bench/results/" + name)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(raw, to); err != nil {
		t.Fatal(err)
	}
}

// kernelOfOp returns the kernel of an operation by its name in the stored runs.
func kernelOfOp(op string) *kernel {
	switch {
	case strings.Contains(op, "sha"):
		return &kernelSHA256
	case strings.HasPrefix(op, "aes"):
		return &kernelGCM
	}
	return &kernelChaCha
}

// TestCopiedTextsAreTheCPUs where the stored run has no call that the GPU does sooner than all cores.
func TestCopiedTextsAreTheCPUs(t *testing.T) {
	var run struct {
		Keys []struct {
			Op      string `json:"op"`
			FromAll int    `json:"gpu_from_all_cores"`
		} `json:"keys"`
	}
	stored(t, "gpu-h200.json", &run)
	ciphers := 0
	for _, k := range run.Keys {
		if !strings.Contains(k.Op, "aes") && !strings.Contains(k.Op, "chacha") && !strings.Contains(k.Op, "sha256") {
			continue
		}
		ciphers++
		for _, bytes := range []int{1 << 20, 8 << 20, 1 << 28, 1 << 40} {
			if got, want := new(Engine).pays(kernelOfOp(k.Op), where{}, bytes/1408, bytes), k.FromAll > 0 && bytes >= 1408*k.FromAll; got != want {
				t.Errorf("%s: %d bytes on the GPU: %v, by the stored run %v", k.Op, bytes, got, want)
			}
		}
	}
	if ciphers != 5 {
		t.Errorf("%d operations are in the stored run", ciphers)
	}
}

// TestTextsInPlaceAreTheDevicesWhereItIsFaster: no call that the device gets takes it longer than all cores.
func TestTextsInPlaceAreTheDevicesWhereItIsFaster(t *testing.T) {
	var run struct {
		Figures []struct {
			Op    string  `json:"op"`
			Form  string  `json:"form"`
			Bytes int     `json:"bytes"`
			N     int     `json:"n"`
			Ms    float64 `json:"ms"`
		} `json:"figures"`
	}
	stored(t, "symmetric-h200.json", &run)
	paying := 0
	for _, area := range run.Figures {
		if area.Form != "area" || !new(Engine).pays(kernelOfOp(area.Op), where{ptr: 1}, area.N, area.N*area.Bytes) {
			continue
		}
		paying++
		if new(Engine).pays(kernelOfOp(area.Op), where{ptr: 1}, area.N, area.N*area.Bytes*9/10) {
			t.Errorf("%s: a call pays that is smaller than what was measured", area.Op)
		}
		for _, cpu := range run.Figures {
			if cpu.Form == "cpu" && cpu.Op == area.Op && cpu.Bytes == area.Bytes && cpu.Ms < area.Ms {
				t.Errorf("%s, %d bytes: %.2f ms on the GPU, %.2f on all cores", area.Op, area.Bytes, area.Ms, cpu.Ms)
			}
		}
	}
	if paying != 4 { // hashes and HMAC of 1408 and 16384 bytes
		t.Errorf("%d of the stored calls pay", paying)
	}
	if new(Engine).pays(&kernelSHA256, where{ptr: 1}, 1<<22, 64<<22) { // of 64 bytes all cores hash sooner
		t.Error("short texts are the GPU's")
	}
	if !new(Engine).pays(&kernelGCM, where{ptr: 1, resident: true}, 1, 1) {
		t.Error("the cores get what they cannot reach")
	}
}
