package harness

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// A Peer is a program that is built from bench/ into bin/: it is nothing that Millrace ships.
type Peer struct {
	Path   string
	Absent string // why it could not be built
}

// BuildC compiles bench/peers/name.c to bin/bench-name with the machine's C compiler, at the
// optimisation that a careful user would choose, with the libraries that pkg-config knows by these names, or
// that the compiler finds itself ("-lNAME").
func (e *Env) BuildC(name string, libraries ...string) Peer {
	cc := os.Getenv("CC")
	if cc == "" {
		cc = "gcc"
	}
	out := filepath.Join(e.Root, "bin", "bench-"+name)
	if _, err := exec.LookPath(cc); err != nil {
		if _, there := os.Stat(out); there == nil {
			e.Log("%s as it is: no %s to build it", filepath.Base(out), cc)
			return Peer{Path: out}
		}
		return Peer{Absent: "no C compiler: apt-get install gcc libc6-dev linux-libc-dev"}
	}
	args := []string{"-O2", "-o", out, name + ".c", "-pthread"}
	var bare []string // libraries that pkg-config does not know
	for _, l := range libraries {
		if strings.HasPrefix(l, "-l") {
			bare = append(bare, l)
			continue
		}
		flags, err := exec.Command("pkg-config", "--cflags", "--libs", l).Output()
		if err != nil {
			return Peer{Absent: fmt.Sprintf("no %s: apt-get install %s-dev pkg-config", l, l)}
		}
		args = append(args, strings.Fields(string(flags))...)
	}
	args = append(append(args, bare...), "-march=native") // behind what a library asks for
	return e.build(out, filepath.Join(e.Root, "bench", "peers"), cc, args...)
}

// BuildGo compiles the module bench/name, whose dependencies stay out of the main module.
func (e *Env) BuildGo(name string) Peer {
	out := filepath.Join(e.Root, "bin", "bench-"+name)
	return e.build(out, filepath.Join(e.Root, "bench", name), "go", "build", "-o", out, ".")
}

func (e *Env) build(out, dir, name string, args ...string) Peer {
	if err := os.MkdirAll(filepath.Dir(out), 0o755); err != nil {
		return Peer{Absent: err.Error()}
	}
	if _, err := exec.LookPath(name); err != nil {
		if _, there := os.Stat(out); there == nil {
			e.Log("%s as it is: no %s to build it", filepath.Base(out), name)
			return Peer{Path: out}
		}
	}
	e.Log("build %s", filepath.Base(out))
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	if said, err := cmd.CombinedOutput(); err != nil {
		first, _, _ := strings.Cut(strings.TrimSpace(string(said)), "\n")
		return Peer{Absent: fmt.Sprintf("does not build: %v: %s", err, first)}
	}
	return Peer{Path: out}
}

// BuildMillrace builds the program that is measured, as it ships.
func (e *Env) BuildMillrace() Peer {
	out := filepath.Join(e.Root, "bin", "bench-millrace")
	return e.build(out, filepath.Join(e.Root, "cmd"), "go", "build", "-trimpath", "-tags", "cuda", "-ldflags", "-s -w", "-o", out, "./millrace")
}
