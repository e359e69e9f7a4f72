"""QuestionForm and AnswerKey: reading, showing and grading them."""
