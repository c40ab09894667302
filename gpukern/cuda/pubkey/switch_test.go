package pubkey

import (
	"encoding/json"
	"os"
	"testing"
)

// storedRun is what is compared of bench/results/gpu-h200.json.
type storedRun struct {
	Machine struct {
		Cores int `json:"cores"`
	} `json:"machine"`
	Keys []struct {
		Op      string `json:"op"`
		Figures []struct {
			Path string  `json:"path"`
			Rate float64 `json:"operations_per_second"`
		} `json:"figures"`
		Calls []struct {
			Operations int     `json:"operations"`
			Ms         float64 `json:"ms"`
		} `json:"calls"`
	} `json:"keys"`
}

// TestSwitchPointsAreThoseOfTheStoredRun: at the switch point of a task, and at every larger call that was measured, the GPU
// takes less time than all processors of its host, and at half of it more.
func TestSwitchPointsAreThoseOfTheStoredRun(t *testing.T) {
	raw, err := os.ReadFile("../../../bench/results/gpu-h200.json")
	if err != nil {
		t.Fatal(err)
	}
	var run storedRun
	if err := json.Unmarshal(raw, &run); err != nil {
		t.Fatal(err)
	}
	ops := map[string]string{
		"x25519": "x25519", "p256": "p256-sign", "p384": "p384-sign", "rsa2048": "rsa2048-sign", "rsa3072": "rsa3072-sign",
		"rsa4096": "rsa4096-sign", "ed25519": "ed25519-verify", "ed25519 commit": "ed25519-sign", "ed25519 respond": "ed25519-sign",
		"mlkem768": "mlkem768-encaps", "mlkem768 open": "mlkem768-decaps",
	}
	for name, c := range costs {
		found := false
		for _, k := range run.Keys {
			if k.Op != ops[name] {
				continue
			}
			found = true
			all := 0.0 // operations a millisecond
			for _, f := range k.Figures {
				if f.Path == "cpu-all" {
					all = f.Rate / 1000
				}
			}
			gpu := func(n int) float64 { // between the calls that were measured, a line
				for i := 1; i < len(k.Calls); i++ {
					a, b := k.Calls[i-1], k.Calls[i]
					if n <= b.Operations {
						return a.Ms + (b.Ms-a.Ms)*float64(n-a.Operations)/float64(b.Operations-a.Operations)
					}
				}
				t.Fatalf("%s: no call of %d was measured", name, n)
				return 0
			}
			n := c.fewest(run.Machine.Cores)
			if at := gpu(n); at > float64(n)/all {
				t.Errorf("%s: a call of %d takes the GPU %.2f ms, all processors %.2f", name, n, at, float64(n)/all)
			}
			if at := gpu(n / 2); at < float64(n/2)/all {
				t.Errorf("%s: a call of %d takes the GPU %.2f ms already, all processors %.2f", name, n/2, at, float64(n/2)/all)
			}
			for _, call := range k.Calls {
				if call.Operations >= n && call.Ms > float64(call.Operations)/all {
					t.Errorf("%s: a call of %d takes all processors less time", name, call.Operations)
				}
			}
		}
		if !found {
			t.Errorf("%s is not in the stored run", name)
		}
	}
}
