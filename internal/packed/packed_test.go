package packed

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io/fs"
	"testing"
	"testing/fstest"
)

func TestRead(t *testing.T) {
	want := bytes.Repeat([]byte("library"), 1000)
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write(want); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	whole := b.Bytes()
	files := fstest.MapFS{
		"lib.so.gz":  {Data: whole},
		"cut.so.gz":  {Data: whole[:len(whole)-9]},
		"text.so.gz": {Data: want},
	}
	if got, err := Read(files, "lib.so"); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	if _, err := Read(files, "absent.so"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file that is not there: %v", err)
	}
	for _, name := range []string{"cut.so", "text.so"} {
		if b, err := Read(files, name); err == nil || b != nil {
			t.Errorf("%s: %d bytes, %v", name, len(b), err)
		}
	}
}
