-- The crowd server's database stands apart from the pipeline's: two parties, two databases.
CREATE DATABASE crowd OWNER mitl;
