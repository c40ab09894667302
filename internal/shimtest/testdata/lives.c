#include "life.h"
const struct part lives[] = {{NULL, NULL}};
