"""What an account means: what each block is for, when it lives, what grows, what is free, what changed."""
