package hostkern

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"

	"golang.org/x/sys/unix"
)

// compiler is the C++ compiler; the kernels are built to PTX by clang-19 too.
const compiler = "clang++-19"

// flags are how kernels are compiled for the CPU. Undefined behaviour stops the program.
var flags = []string{
	"-std=c++17", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-fPIC", "-pthread",
	"-fsanitize=undefined", "-fno-sanitize-recover=undefined", "-fsanitize-trap=undefined", "-DGK_HOST", "-x", "c++",
}

// compile makes a library of sources. Objects are kept in the user's cache folder, by what they were made
// from: tests of many packages compile the same kernels.
func compile(lib string, sources []string) error {
	objects, errs := make([]string, len(sources)), make([]error, len(sources))
	var all sync.WaitGroup
	for i, s := range sources {
		all.Go(func() { objects[i], errs[i] = object(s) })
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("kernels do not compile for the CPU: %w", err)
	}
	if _, err := run(append([]string{"-shared", "-pthread", "-Wl,-Bsymbolic", "-o", lib}, objects...)); err != nil {
		return fmt.Errorf("kernels do not link for the CPU: %w", err)
	}
	return nil
}

// object returns the object file of a source, compiled now or before: its name is made from what the compiler
// sees.
func object(source string) (string, error) {
	text, err := run(slices.Concat(flags, []string{"-E", source}))
	if err != nil {
		return "", err
	}
	key := sha256.Sum256(fmt.Appendf(text, "%q", flags))
	dir, err := os.UserCacheDir()
	if err != nil {
		dir = os.TempDir()
	}
	dir = filepath.Join(dir, "millrace-kernels")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	o := filepath.Join(dir, fmt.Sprintf("%x.o", key[:16]))
	if _, err := os.Stat(o); err == nil {
		return o, nil
	}
	// Tests of other packages may compile the same source at this moment: one of them does.
	lock, err := os.OpenFile(o+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return "", err
	}
	defer lock.Close() // which unlocks
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		return "", err
	}
	if _, err := os.Stat(o); err == nil {
		return o, nil
	}
	part, err := os.CreateTemp(dir, "part-*.o")
	if err != nil {
		return "", err
	}
	part.Close()
	defer os.Remove(part.Name())
	if _, err := run(slices.Concat(flags, []string{"-c", "-o", part.Name(), source})); err != nil {
		return "", err
	}
	return o, os.Rename(part.Name(), o)
}

// run runs the compiler and returns what it prints.
func run(args []string) ([]byte, error) {
	var out, complaints bytes.Buffer
	cmd := exec.Command(compiler, args...)
	cmd.Stdout, cmd.Stderr = &out, &complaints
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("%w\n%s", err, &complaints)
	}
	return out.Bytes(), nil
}
