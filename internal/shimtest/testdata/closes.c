#include "life.h"
const struct part closes[] = {{NULL, NULL}};
