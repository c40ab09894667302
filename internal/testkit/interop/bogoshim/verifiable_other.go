//go:build !bogo

package main

import (
	"crypto/tls"
	"errors"
)

func (f *flags) verifiable(*tls.Config) error {
	if f.verifyPrefs != nil {
		return errors.New("-verify-prefs needs a build with -tags bogo")
	}
	return nil
}
