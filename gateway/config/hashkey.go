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

// readKey reads the file of the hash key. Errors name the file and the line, and never show what is in it.
func (c *Config) readKey() error {
	if c.HashKey.File == "" {
		return nil
	}
	path := c.HashKey.File
	if !filepath.IsAbs(path) {
		path = filepath.Join(filepath.Dir(c.file), path)
	}
	if err := c.HashKey.read(path); err != nil {
		p := c.keyAt
		p.Message = "the hash key cannot be read: " + err.Error()
		p.Hint = "a line of 32 to 128 hexadecimal digits (`openssl rand -hex 16`), and in a second line the key before, or none"
		return &Error{Problems: []Problem{p}}
	}
	return nil
}

// read reads the key in the first line of a file, and in the second the one before it.
func (k *HashKey) read(path string) error {
	f, err := regfile.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 {
		return fmt.Errorf("%s has mode %#o: others than its owner may use it (chmod 600)", path, mode)
	}
	text, err := io.ReadAll(io.LimitReader(f, 4096))
	if err != nil {
		return err
	}
	lines := strings.Split(strings.TrimRight(string(text), "\n\r\t "), "\n")
	if len(lines) > 2 {
		return fmt.Errorf("%s has %d lines; one or two are allowed", path, len(lines))
	}
	if k.Key, err = hashKeyOf(lines[0]); err != nil {
		return fmt.Errorf("%s, line 1: %w", path, err)
	}
	if k.Before, k.Changed = nil, len(lines) == 2; k.Changed && strings.TrimSpace(lines[1]) != "none" {
		if k.Before, err = hashKeyOf(lines[1]); err != nil {
			return fmt.Errorf("%s, line 2: %w", path, err)
		}
	}
	return nil
}

func hashKeyOf(line string) ([]byte, error) {
	line = strings.TrimSpace(line)
	key, err := hex.DecodeString(line)
	switch {
	case err != nil: // whose text would quote a digit
		return nil, errors.New("not hexadecimal")
	case len(key) < minHashKey || len(key) > maxHashKey:
		return nil, fmt.Errorf("%d octets; %d to %d are allowed", len(key), minHashKey, maxHashKey)
	}
	return key, nil
}
