package config

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/millrace/millrace/internal/regfile"
)

// Lengths of a hash key, in octets.
const (
	minHashKey = 16
	maxHashKey = 64
)

// readKeys reads the files of keys. Problems name the file and the line, and never show what is in it.
func (c *Config) readKeys() (list []Problem) {
	if c.HashKey.File != "" {
		if err := c.HashKey.read(c.Beside(c.HashKey.File)); err != nil {
			list = append(list, keyProblem(c.keyAt, "the hash key cannot be read: "+err.Error(),
				"a line of 32 to 128 hexadecimal digits (`openssl rand -hex 16`), and in a second line the key before, or none"))
		}
	}
	if c.Sync != nil && c.Sync.KeyFile != "" {
		if err := c.Sync.readKey(c.Beside(c.Sync.KeyFile)); err != nil {
			list = append(list, keyProblem(c.syncKeyAt, "the key of sync cannot be read: "+err.Error(),
				"a line of 64 hexadecimal digits (`openssl rand -hex 32`)"))
		}
	}
	if c.BGP != nil {
		list = append(list, c.BGP.readPasswords(c)...)
	}
	return list
}

// Beside returns the path of a file that the configuration names.
func (c *Config) Beside(file string) string {
	if filepath.IsAbs(file) {
		return file
	}
	return filepath.Join(filepath.Dir(c.file), file)
}

// keyProblem returns the problem of the place where a file of a key is named.
func keyProblem(at Problem, message, hint string) Problem {
	at.Message, at.Hint = message, hint
	return at
}

// syncKey is the length of the key of sync, in octets.
const syncKey = 32

// readKey reads the key from a file.
func (s *Sync) readKey(path string) error {
	lines, err := secretLines(path)
	if err != nil {
		return err
	}
	if len(lines) > 1 {
		return fmt.Errorf("%s has %d lines; one is allowed", path, len(lines))
	}
	if s.Key, err = keyOf(lines[0], syncKey, syncKey); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// read reads the key in the first line of a file, and in the second the one before it.
func (k *HashKey) read(path string) error {
	lines, err := secretLines(path)
	if err != nil {
		return err
	}
	if len(lines) > 2 {
		return fmt.Errorf("%s has %d lines; one or two are allowed", path, len(lines))
	}
	if k.Key, err = keyOf(lines[0], minHashKey, maxHashKey); err != nil {
		return fmt.Errorf("%s, line 1: %w", path, err)
	}
	if k.Before, k.Changed = nil, len(lines) == 2; k.Changed && strings.TrimSpace(lines[1]) != "none" {
		if k.Before, err = keyOf(lines[1], minHashKey, maxHashKey); err != nil {
			return fmt.Errorf("%s, line 2: %w", path, err)
		}
	}
	return nil
}

// secretLines returns the lines of a file that only its owner may use; at least one.
func secretLines(path string) ([]string, error) {
	f, err := regfile.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if mode := info.Mode().Perm(); mode&0o027 != 0 { // a service may read what is root's by the group
		return nil, fmt.Errorf("%s has mode %#o: others than its owner and group may use it (chmod 640, or 600)", path, mode)
	}
	text, err := io.ReadAll(io.LimitReader(f, 4096))
	if err != nil {
		return nil, err
	}
	return strings.Split(strings.TrimRight(string(text), "\n\r\t "), "\n"), nil
}

// keyOf reads a key of least to most octets.
func keyOf(line string, least, most int) ([]byte, error) {
	line = strings.TrimSpace(line)
	key, err := hex.DecodeString(line)
	switch {
	case err != nil: // whose text would quote a digit
		return nil, errors.New("not hexadecimal")
	case len(key) < least || len(key) > most:
		return nil, fmt.Errorf("%d octets; %s are allowed", len(key), span(least, most))
	}
	return key, nil
}
