package replay

import (
	"context"
	"os"
	"path/filepath"
	"testing"
)

// captures returns the sample captures, or skips the test where there are none.
func captures(t testing.TB) []string {
	t.Helper()
	dir := os.Getenv("MILLRACE_PCAPS")
	if dir == "" {
		dir = "../../../shared/pcaps"
	}
	files, _ := filepath.Glob(filepath.Join(dir, "*.pcap*"))
	if len(files) == 0 {
		t.Skipf("no captures in %s: set MILLRACE_PCAPS", dir)
	}
	return files
}

func TestEveryCaptureIsVerified(t *testing.T) {
	v, err := Verify(context.Background(), Config{Files: captures(t)})
	if err != nil {
		t.Error(err)
	}
	t.Logf("%d packets compared, %d decoded by gopacket too, %d skipped", v.Packets, v.Decoded, v.Skipped)
	for _, m := range v.Mismatches {
		t.Errorf("%s: record %d: %s: engine %s, %s %s", filepath.Base(m.Path), m.Record, m.Field, m.Engine, m.By, m.Other)
	}
}
