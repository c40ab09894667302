package shim

import "testing"

// TestTempFolder: the path of the library has none of the characters at which the loader splits LD_PRELOAD.
func TestTempFolder(t *testing.T) {
	for dir, want := range map[string]string{
		"/var/tmp": "/var/tmp", "/tmp/a:b": "/tmp", "/tmp/two words": "/tmp", "/tmp/tab\there": "/tmp", "/tmp/line\n": "/tmp",
	} {
		t.Setenv("TMPDIR", dir)
		if got := tempFolder(); got != want {
			t.Errorf("TMPDIR=%q: %q", dir, got)
		}
	}
}
