package cache

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A folder that is removed under way is made again by the next store, which says so once.
func TestRemovedFoldersAreRecreated(t *testing.T) {
	for name, remove := range map[string]func(dir string) error{
		"the folder": os.RemoveAll,
		"the folder, and another is in its place": func(dir string) error {
			if err := os.RemoveAll(dir); err != nil {
				return err
			}
			return os.Mkdir(dir, 0o700)
		},
		"what is in it": func(dir string) error {
			return removeAll(filepath.Join(dir, "*"))
		},
		"the folders in it": func(dir string) error {
			return removeAll(filepath.Join(dir, "??"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newDiskRig(t, nil)
			r.put(withBody("http://a.example/old", "x"))
			if err := remove(r.o.Dir); err != nil {
				t.Fatal(err)
			}
			r.put(withBody("http://a.example/1", "y"))
			r.put(withBody("http://a.example/2", "z"))
			r.forget()
			if a, b, old := r.content("http://a.example/1"), r.content("http://a.example/2"), r.content("http://a.example/old"); a != "y" || b != "z" || old != "-" {
				t.Errorf("%q, %q, and what was removed %q", a, b, old)
			}
			if st := r.Disk().Stats(); st.Objects != 2 || st.Counts[DiskRecreated] != 1 || st.Counts[DiskWriteError] != 0 || st.Counts[DiskWritten] != 3 {
				t.Errorf("%+v", st)
			}
			if log := r.log.String(); strings.Count(log, "level=WARN") != 1 || strings.Contains(log, "level=ERROR") {
				t.Error(log)
			}
			if _, err := OpenDisk(r.o); err == nil {
				t.Error("another process can take the folder")
			}
			r.restart()
			if a, b := r.content("http://a.example/1"), r.content("http://a.example/2"); a != "y" || b != "z" {
				t.Errorf("after a restart %q, %q", a, b)
			}
		})
	}
}

func removeAll(pattern string) error {
	all, err := filepath.Glob(pattern)
	for _, name := range all {
		if err == nil {
			err = os.RemoveAll(name)
		}
	}
	return err
}

// The lock is removed with the folder: the first process that takes the new one has it.
func TestRemovedFolderOfAnotherProcess(t *testing.T) {
	r := newDiskRig(t, nil)
	if err := os.RemoveAll(r.o.Dir); err != nil {
		t.Fatal(err)
	}
	other, err := OpenDisk(r.o)
	if err != nil {
		t.Fatal(err)
	}
	r.put(withBody("http://a.example/1", "x"))
	if st := r.Disk().Stats(); st.Counts[DiskRecreated] != 0 || st.Counts[DiskWriteError] != 1 || len(r.files()) != 0 || !strings.Contains(r.log.String(), "another process") {
		t.Errorf("%+v, %q, %s", st, r.files(), r.log.String())
	}
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	r.now = r.now.Add(diskRetry)
	r.put(withBody("http://a.example/2", "x"))
	if r.forget(); r.content("http://a.example/2") != "x" || len(r.files()) != 1 {
		t.Errorf("%q, %s", r.files(), r.log.String())
	}
}

// A folder whose parent is gone cannot be made: the failure is logged once.
func TestRemovedFolderWithoutAParent(t *testing.T) {
	r := newDiskRig(t, func(o *DiskOptions) {
		parent := filepath.Join(t.TempDir(), "p")
		if err := os.Mkdir(parent, 0o700); err != nil {
			t.Fatal(err)
		}
		o.Dir = filepath.Join(parent, "d")
	})
	if err := os.RemoveAll(filepath.Dir(r.o.Dir)); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		r.put(withBody("http://a.example/1", "x"))
		r.now = r.now.Add(diskRetry)
	}
	if log := r.log.String(); r.count(DiskWriteError) != 2 || r.count(DiskRecreated) != 0 || strings.Count(log, "level=ERROR") != 1 || strings.Contains(log, "level=WARN") {
		t.Errorf("%d errors, %s", r.count(DiskWriteError), log)
	}
}

// What is in the folders that were not removed stays in the index.
func TestRemovedFolderAmongOthers(t *testing.T) {
	r := newDiskRig(t, nil)
	d := r.Disk()
	r.put(withBody("http://a.example/kept", "x"))
	r.put(withBody("http://a.example/lost", "x"))
	r.forget()
	kept := filepath.Dir(d.name(r.found("http://a.example/kept").disk.id))
	d.Sync()
	d.ids.Store(d.ids.Load() + 1<<56) // the next file is in another folder
	gone := filepath.Dir(d.name(d.ids.Load() + 1))
	if err := os.RemoveAll(filepath.Join(r.o.Dir, gone)); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(r.o.Dir, d.name(r.found("http://a.example/lost").disk.id))); err != nil {
		t.Fatal(err)
	}
	r.put(withBody("http://a.example/new", "y"))
	r.forget()
	if a, b, c := r.content("http://a.example/kept"), r.content("http://a.example/lost"), r.content("http://a.example/new"); kept == gone || a != "x" || b != "-" || c != "y" {
		t.Errorf("%q, %q, %q", a, b, c)
	}
}
