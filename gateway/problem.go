package gateway

import "github.com/millrace/millrace/internal/strictyaml"

// Problem is one mistake in a configuration file, or in a list that it names.
type Problem = strictyaml.Problem

// ConfigError holds every mistake of a configuration file, in the order of the file.
type ConfigError = strictyaml.Error
