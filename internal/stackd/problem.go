package stackd

import "github.com/millrace/millrace/internal/strictyaml"

// Problem is one mistake in a configuration file, or in flags that stand for one.
type Problem = strictyaml.Problem

// ConfigError holds every mistake of a configuration, in the order of the file.
type ConfigError = strictyaml.Error
