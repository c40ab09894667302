package replay

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/millrace/millrace/internal/testkit/testpcaps"
)

func TestEveryCaptureIsVerified(t *testing.T) {
	v, err := Verify(context.Background(), Config{Files: testpcaps.Files(t)})
	if err != nil {
		t.Error(err)
	}
	t.Logf("%d packets compared, %d decoded by gopacket too, %d skipped", v.Packets, v.Decoded, v.Skipped)
	for _, m := range v.Mismatches {
		t.Errorf("%s: record %d: %s: engine %s, %s %s", filepath.Base(m.Path), m.Record, m.Field, m.Engine, m.By, m.Other)
	}
}
